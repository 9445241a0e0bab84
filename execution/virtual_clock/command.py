"""Commands of Railbed that a virtual machine executes, in which instructions are the clock.

Runs, path checks and benchmarks have the same results as by the real clock. The machine sees
nothing of the host, so a result is a function of the program, the machine's image, the command, its
files and the seed: a known result is not computed again.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from execution.virtual_clock import known_results
from execution.virtual_clock.known_results import KnownResult, copied, stored
from execution.virtual_clock.machines import guest_mib
from linux.files.user_files import digest_of as digest_of_files
from linux.files.user_files import work_folder
from model.errors import RailbedError
from model.sweep import VIRTUAL
from results.store.runs import digest_of, read_state, require_writable
from results.store.sweeps import WITH_RESULT
from scenarios.load import with_files_in
from scenarios.scenario import Scenario
from testbed.virtual_machine.guest import Guest, program_job, version
from testbed.virtual_machine.image import INSIDE, Program, program

INSTRUCTION_NS = 1
# In the machine, GPU proxies are processes: it has no Docker Engine.
OPTIONS = ("--json", "--proxies", "process")
# The folder of a scenario's traces and configurations in the machine.
FILES = Path("/files")


class EndedInside(RailbedError):
    """A command that ended with an error inside of the machine, which has printed the cause."""

    def __init__(self, exit_code: int, runs: list[Path]) -> None:
        kept = "".join(f" The records until then are in {run}." for run in runs)
        super().__init__(
            f"virtual clock: the command ended with exit code {exit_code}; see the lines above."
            + kept
        )
        self.exit_code = exit_code


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

        Passes on the command's standard error, without `progress` only if there is no result, which
        raises `EndedInside`; runs that ended early are then in `store`.
        """
        with work_folder(known_results.results_folder()) as folder:
            key = self.key
            known = None if fresh else known_results.find(key, folder)
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
            exit_code, output = guest.execute(
                job, self.files, folder, shows_output=False, silent=silent
            )
        computed = KnownResult(folder)
        if exit_code not in WITH_RESULT:
            kept = [copied(run, store, self.scenario) for run in computed.runs]
            raise EndedInside(exit_code, kept)
        computed.write(exit_code, output)
        if self.key == key:
            known_results.add(key, computed)
        return computed


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
        return stored(run, store, command.clock, scenario.text)


def verify_virtually(scenario: Scenario, store: Path, *, fresh: bool) -> dict[str, Any]:
    """Check the paths of a scenario's fabrics; return the JSON object of the check."""
    command = _on_scenario("verify", scenario)
    with command.result(store, fresh=fresh) as result:
        return _printed(command, result)


def _on_scenario(name: str, scenario: Scenario) -> VirtualCommand:
    file, (text, copies) = f"{scenario.name}.yaml", with_files_in(FILES, scenario)
    return VirtualCommand(
        words=(name, f"$RAILBED_HANDED/{file}", *OPTIONS),
        files={file: text},
        seed=scenario.machine_seed,
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
            if read_state(run)["state"] == "complete":
                stored(run, store, command.clock)
            else:
                copied(run, store)
        return result.exit_code, _printed(command, result)


def _printed(command: VirtualCommand, result: KnownResult) -> dict[str, Any]:
    """The JSON object that a command has printed, its records if it has no runs; with its clock."""
    clock = {**command.clock, "records": digest_of(result.output)}
    return {**json.loads(result.output), "clock": clock}
