"""Commands of Railbed that a virtual machine executes, in which instructions are the clock.

Runs, path checks and benchmarks have the same results as by the real clock. The machine sees
nothing of the host, so a result is a function of the program, the machine's image, the command, its
files and the seed: a known result is not computed again.

    CACHE/results/KEY/output       what the command printed
    CACHE/results/KEY/exit-code
    CACHE/results/KEY/runs/RUN     the folders of its runs

The least recently used results are removed when all together have more than `MOST_BYTES`. Runs are
copied into the store of this machine's runs.
"""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from execution.virtual_clock.machines import guest_mib
from linux.files.user_files import complete_folder, remove_folder, work_folder
from linux.files.user_files import digest_of as digest_of_files
from model.errors import InputError, NotReady, RailbedError
from model.sweep import VIRTUAL
from results.store.records import read_json, write_json, write_record
from results.store.runs import copy_into_store, digest_of, new_run_id, require_writable, scenario_of
from results.store.sweeps import WITH_RESULT
from results.store.tables import seal
from scenarios.load import with_files_in
from scenarios.scenario import Scenario
from testbed.virtual_machine import cache
from testbed.virtual_machine.guest import Ended, Guest, program_job, version
from testbed.virtual_machine.image import INSIDE, Program, program

MOST_BYTES = 2 * 2**30
# Files of a run with the time or the place of its storage; all others are its records.
NOT_RECORDS = ("result.json", "state.json")
INSTRUCTION_NS = 1
# In the machine, GPU proxies are processes: it has no Docker Engine.
OPTIONS = ("--json", "--proxies", "process")
# The folder of a scenario's traces and configurations in the machine.
FILES = Path("/files")
# QEMU takes names of up to 55 characters, with their folder: fewer than a scenario's may have.
SCENARIO = "scenario.yaml"


@dataclass(frozen=True)
class KnownResult:
    """A command's result in its folder."""

    folder: Path

    @property
    def output(self) -> bytes:
        """The standard output of the command: a JSON object."""
        return (self.folder / "output").read_bytes()

    @property
    def exit_code(self) -> int:
        """The command's exit code."""
        return int((self.folder / "exit-code").read_text())

    @property
    def runs(self) -> list[Path]:
        """The folders of its runs, oldest first."""
        return sorted((self.folder / "runs").glob("*"))

    def write(self, exit_code: int, output: bytes) -> None:
        """Write the fields that do not come as files."""
        (self.folder / "output").write_bytes(output)
        (self.folder / "exit-code").write_text(f"{exit_code}\n")


def results_folder() -> Path:
    """The folder of all results, made if missing."""
    folder = cache.cache_folder() / cache.RESULTS
    cache.make_cache(folder)
    return folder


def find_result(key: str, target: Path) -> KnownResult | None:
    """Copy the result with this key, and mark it as used last; return `None` if unknown.

    It is a copy, as another process may replace the stored result later.
    """
    results = results_folder()
    with cache.locked_folder(results):
        known = results / key
        if not (known / "exit-code").is_file():
            return None
        os.utime(known)
        return KnownResult(Path(shutil.copytree(known, target, dirs_exist_ok=True)))


def add_result(key: str, computed: KnownResult) -> None:
    """Copy a computed result to its place, where it replaces an earlier one."""
    results = results_folder()
    with cache.locked_folder(results):
        known = results / key
        with complete_folder(known) as folder:
            shutil.copytree(computed.folder, folder, dirs_exist_ok=True)
        cache.hand_over(known)
        _drop_oldest(results, known)


def _drop_oldest(results: Path, newest: Path) -> None:
    sizes = {place: cache.size_of(place) for place in cache.by_last_use(results.glob(cache.KEYS))}
    left = sum(sizes.values())
    for place, size in sizes.items():
        if left <= MOST_BYTES or place == newest:
            return
        left -= size
        remove_folder(place)


def stored(run: Path, store: Path, clock: Mapping[str, Any], scenario: str | None = None) -> Path:
    """Copy a run into the store, under an id of its own: inside, the date is always the same.

    The copy gets the text of its `scenario` on this machine: files have other paths inside. That of
    a complete run has the clock, with the digest of the records as the machine wrote them.
    """
    target = store.resolve() / new_run_id(scenario_of(run.name) or run.name)
    with copy_into_store(run, target) as folder:
        changes: dict[str, Any] = {"run_id": target.name, "folder": str(target)}
        if scenario is not None:
            write_record(folder / "scenario.yaml", scenario)
            changes["scenario_digest"] = digest_of(scenario)
        if (run / "result.json").is_file():
            changes["clock"] = {**clock, "records": records_digest(run)}
            write_json(folder / "result.json", {**read_json(folder / "result.json"), **changes})
            seal(folder)
    return target


def records_digest(run: Path) -> str:
    """A digest of all records of a run, 16 hexadecimal digits: equal for equal records."""
    whole = hashlib.sha256()
    for file in sorted(place for place in run.rglob("*") if place.is_file()):
        if file.name not in NOT_RECORDS:
            whole.update(f"{file.relative_to(run)}\0".encode() + file.read_bytes())
    return whole.hexdigest()[:16]


class EndedInside(RailbedError):
    """A command that ended without a result inside of the machine, for a cause that it has told.

    `printed` is the JSON object that it has printed nevertheless.
    """

    def __init__(self, ended: Ended, runs: Sequence[Path], printed: dict[str, Any] | None) -> None:
        kept = "".join(f"; the records until then are in {run}" for run in runs)
        what = f"the command ended with exit code {ended.exit_code}: {ended.message}"
        super().__init__(f"virtual clock: {what}{kept}")
        self.printed = printed
        if ended.exit_code in (InputError.exit_code, NotReady.exit_code):
            self.exit_code = ended.exit_code


@dataclass(frozen=True)
class VirtualCommand:
    """A command, the files handed to it by name, and the seed of the machine's random numbers.

    A word of the command may begin with `$RAILBED_HANDED/`, the folder of the files inside.
    `copies` has other files, by their paths inside. Runs keep the text of their `scenario` with the
    paths of this machine.
    """

    words: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    memory_mib: int = Guest.memory_mib
    machine: Program = field(default_factory=lambda: program())
    copies: Mapping[Path, Path] = field(default_factory=dict)
    scenario: str | None = None

    @property
    def key(self) -> str:
        """A digest of all inputs of the result."""
        files = (part for name in sorted(self.files) for part in (name, self.files[name]))
        copies = digest_of_files(self.copies)
        numbers = str(self.memory_mib), str(self.seed)
        parts = (self.machine.digest, version(), *self.words, *files, copies, *numbers)
        return digest_of("\0".join(parts))

    @property
    def clock(self) -> dict[str, Any]:
        """The clock, as in the result's JSON object."""
        return {
            "kind": VIRTUAL,
            "instruction_ns": INSTRUCTION_NS,
            "image": self.machine.digest,
            "qemu": version(),
            "seed": self.seed,
        }

    @contextmanager
    def result(self, store: Path, *, fresh: bool, progress: bool = True) -> Iterator[KnownResult]:
        """The command's result: a known one, unless `fresh`, or that of an execution.

        Passes on the command's standard error, without `progress` only if its exit code is none of
        a result. Raises `EndedInside` without a result; runs that ended early are then in `store`.
        """
        with work_folder(results_folder()) as folder:
            key = self.key
            known = None if fresh else find_result(key, folder)
            yield known or self._computed(key, folder, store, progress)

    def _computed(self, key: str, folder: Path, store: Path, progress: bool) -> KnownResult:
        """Execute the command; its result is in `folder`, and known by its key from now on.

        It is not stored if a file has changed during the execution: the executed content is not
        known.
        """
        job = program_job(self.words, self.seed)
        with work_folder() as apart:
            initrd = self.machine.initrd_with(self.copies, apart)
            guest = Guest(self.machine.kernel, initrd, INSIDE, self.memory_mib)
            silent = () if progress else WITH_RESULT
            if progress:
                what = "booting the virtual machine; takes a minute or two"
                print(f"railbed: {what}", file=sys.stderr)
            ended = guest.execute(job, self.files, folder, shows_output=False, silent=silent)
        computed, printed = KnownResult(folder), None
        with suppress(ValueError):
            printed = self.printed(ended.output)
        # Python's own failures have exit code 1, too.
        if ended.exit_code not in WITH_RESULT or printed is None:
            kept = [stored(run, store, self.clock, self.scenario) for run in computed.runs]
            raise EndedInside(ended, kept, printed)
        computed.write(ended.exit_code, ended.output)
        if self.key == key:  # else a file has changed meanwhile: what was executed is not known
            add_result(key, computed)
        return computed

    def printed(self, output: bytes) -> dict[str, Any]:
        """The JSON object that the command has printed, its records if it has no runs; its clock.

        Raises `ValueError` for anything but an object.
        """
        text = output.decode()
        printed = json.loads(text)
        if not isinstance(printed, dict):
            raise ValueError(f"must be an object, got {type(printed).__name__}")
        return {**printed, "clock": {**self.clock, "records": digest_of(text)}}


def run_virtually(
    scenario: Scenario, store: Path, *, fresh: bool, progress: bool = True
) -> dict[str, Any]:
    """Run a scenario; return its JSON object, which its folder in `store` keeps, too.

    A known result is copied, unless `fresh`. Prints lines if there is `progress`. Raises
    `EndedInside` if the run ended without a result.
    """
    require_writable(store)
    command = _on_scenario("run", scenario)
    with command.result(store, fresh=fresh, progress=progress) as result:
        (run,) = result.runs
        return read_json(stored(run, store, command.clock, command.scenario) / "result.json")


def verify_virtually(scenario: Scenario, store: Path, *, fresh: bool) -> dict[str, Any]:
    """Check the paths of a scenario's fabrics; return the JSON object of the check."""
    command = _on_scenario("verify", scenario)
    with command.result(store, fresh=fresh) as result:
        return command.printed(result.output)


def _on_scenario(name: str, scenario: Scenario) -> VirtualCommand:
    text, copies = with_files_in(FILES, scenario)
    return VirtualCommand(
        words=(name, f"$RAILBED_HANDED/{SCENARIO}", *OPTIONS),
        files={SCENARIO: text},
        seed=scenario.keys.machine_seed,
        memory_mib=guest_mib(scenario.gpus),
        copies=copies,
        scenario=scenario.text,
    )


def bench_virtually(name: str, store: Path, *, fresh: bool) -> tuple[int, dict[str, Any]]:
    """Measure a benchmark; return its exit code and its JSON object.

    Its runs come into `store`, the complete ones with the clock.
    """
    require_writable(store)
    command = VirtualCommand(("bench", name, "--json"))
    with command.result(store, fresh=fresh) as result:
        for run in result.runs:
            stored(run, store, command.clock)
        return result.exit_code, command.printed(result.output)
