"""Commands that take minutes to hours: what is in them, and how each ended the last time.

`docs/reference/long_runs.csv` keeps the records, `docs/reference/checks.md` shows them as a table.
A record whose code has changed since is marked there.
"""

import csv
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from pathlib import Path

from studies import benchmarks
from tests.shown.checks import How, checks
from tests.shown.pages import OWN, ROOT, TABLE

RECORDS = ROOT / "docs" / "reference" / "long_runs.csv"
HEADER = f"{TABLE} min:s | commit, date, machine |"
RULE = "|---|---|---|---|"
CHANGED = "older code"
NOT_YET = "Not executed yet:"


@dataclass(frozen=True)
class LongRun:
    """A command, and the files and folders whose change makes its last record old."""

    command: str
    code: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Digest of the content of its code."""
        files = (file for place in self.code for file in _files(ROOT / place))
        digest = hashlib.sha256()
        for file in sorted(files):
            digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
        return digest.hexdigest()[:12]


def _files(place: Path) -> Iterable[Path]:
    if place.is_file():
        return [place]
    return (file for file in place.rglob("*") if file.suffix in (".py", ".sh", ".yaml"))


@dataclass(frozen=True)
class Record:
    """How a long run ended: `outcome` is `pass`, or the exit code with the last line of output."""

    command: str
    commit: str
    date: str
    machine: str
    digest: str
    outcome: str
    duration_s: str


BENCHMARK = "railbed bench "
FABRIC = ("controller", "execution", "linux", "scenarios", "testbed", "traffic_gen")
# The code that a long run shows to work, by the beginning of its command; the first one counts.
CODE = {
    "railbed paper": ("studies/twins",),
    "railbed sweep": ("execution/sweep",),
    "railbed exec": ("testbed/program_image.sh", "testbed/programs", "scenarios/library/programs"),
    "railbed vm": ("testbed/virtual_machine", "tests/integration", "tests/system"),
    "railbed": FABRIC,
    "testbed/install_ray.sh": ("execution/sweep", "tests/ray_cluster.py", "testbed/install_ray.sh"),
    "tests/vagrant/prove.sh": ("Vagrantfile", "testbed/provision.sh", "tests/vagrant"),
    ".venv/bin/python -m tests.hosts": ("testbed/provision.sh", "testbed/host", "tests/hosts"),
    ".venv/bin/python -m tests.fuzz": ("commands", "scenarios", "results", "tests/fuzz.py"),
    ".venv/bin/python -m pytest tests/browser": ("execution/live", "results", "tests/browser"),
}


def long_runs() -> list[LongRun]:
    """The long runs that the documentation's commands name, in the order of the alphabet."""
    commands = sorted({check.long_run for check in checks() if check.how is How.LONG})
    return [LongRun(command, code_of(command)) for command in commands]


def code_of(command: str) -> tuple[str, ...]:
    """The files and folders that a long run shows to work; raises `LookupError` if unknown."""
    if command.startswith(BENCHMARK):
        return benchmarks.code_of(command.removeprefix(BENCHMARK).partition(" ")[0])
    for beginning, code in CODE.items():
        if command.startswith(beginning):
            return code
    raise LookupError(f"tests/shown/long_runs.py: CODE has nothing for {command}")


def known_records() -> dict[str, Record]:
    """The last record of each long run, by its command."""
    if not RECORDS.exists():
        return {}
    with RECORDS.open(newline="") as file:
        return {row["command"]: Record(**row) for row in csv.DictReader(file)}


def is_current(run: LongRun) -> bool:
    """Whether the last record of a long run passed, with the code that it has."""
    record = known_records().get(run.command)
    return record is not None and (record.outcome, record.digest) == ("pass", run.digest)


def keep(record: Record) -> None:
    """Replace the last record of a long run, and renew the table."""
    records = {**known_records(), record.command: record}
    with RECORDS.open("w", newline="") as file:
        lines = csv.DictWriter(file, [field.name for field in fields(Record)], lineterminator="\n")
        lines.writeheader()
        lines.writerows(
            asdict(records[run.command]) for run in long_runs() if run.command in records
        )
    show()


def table() -> list[str]:
    """Return the lines of the page's table, and of the list of commands without a record."""
    records, runs = known_records(), long_runs()
    executed = [run for run in runs if run.command in records]
    machines = [records[run.command].machine for run in executed]
    rows = [
        _row(run, records[run.command], () if machine == above else (machine,))
        for run, machine, above in zip(executed, machines, ["", *machines], strict=False)
    ]
    missing = list(by_subcommand(run.command for run in runs if run.command not in records))
    return [HEADER, RULE, *rows, *(["", NOT_YET, "", *missing] if missing else [])]


def by_subcommand(commands: Iterable[str]) -> Iterator[str]:
    """Yield a line for each command; one line for all arguments of a subcommand."""
    for beginning, group in groupby(commands, lambda command: " ".join(command.split()[:2])):
        several = list(group)
        if len(several) == 1:
            yield f"- `{several[0]}`"
        else:
            arguments = (f"`{command.removeprefix(beginning).strip()}`" for command in several)
            yield f"- `{beginning}`: {', '.join(arguments)}"


def _code(run: LongRun) -> str:
    return f"`{run.command}`"


def _row(run: LongRun, record: Record, machine: tuple[str, ...]) -> str:
    command = _code(run).replace("|", "\\|")
    outcome = record.outcome
    if record.digest != run.digest:
        outcome += f"; {CHANGED}"
    minutes, seconds = divmod(round(float(record.duration_s)), 60)
    time = f"{minutes}:{seconds:02d}"
    code = ", ".join((f"`{record.commit}`", record.date, *machine))
    cells = (command, outcome, time, code)
    return f"| {' | '.join(cells)} |"


def show() -> None:
    """Renew the page's table and list, with which it ends."""
    lines = OWN.read_text().splitlines()
    OWN.write_text("\n".join([*lines[: lines.index(HEADER)], *table(), ""]))
