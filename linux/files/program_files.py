"""The program's own files, and its version: a digest of them."""

import csv
import sys
import tomllib
from pathlib import Path

from linux.files.user_files import digest_of

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    *("commands", "controller", "execution", "linux", "model"),
    *("results", "scenarios", "studies", "testbed", "traffic_gen"),
)

# Environment of a process that executes a module of the program.
MODULES_HERE = {"PYTHONPATH": str(ROOT)}


def module_command(module: str, *arguments: object) -> list[str]:
    """Return the command that executes a module of the program, which needs `MODULES_HERE`."""
    return [sys.executable, "-P", "-m", module, *map(str, arguments)]


def program_files(program: Path = ROOT) -> list[Path]:
    """Return the files of all rooms, sorted, as they are on the disk now."""
    files = (file for room in ROOMS for file in (program / room).rglob("*") if file.is_file())
    return sorted(file for file in files if "__pycache__" not in file.parts)


def program_version(program: Path = ROOT) -> str:
    """Return 12 hexadecimal digits of a digest of all files: equal files have the same version."""
    return digest_of({file.relative_to(program): file for file in program_files(program)})[:12]


def rows_of(table: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file of the program, each by the headings of its columns."""
    with table.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def release() -> str:
    """Return the number of the release, as CHANGELOG.md lists it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])
