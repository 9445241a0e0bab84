"""The rule of the house: dependencies point down only, and few modules know a large library."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("linux", "model", "testbed", "controller", "traffic_gen", "results", "scenarios")
SIBLINGS = ("testbed", "controller", "traffic_gen", "results")
MAY_IMPORT = {
    "model": {"model"},
    "linux": {"linux", "model"},
    **{room: {"linux", "model", room} for room in SIBLINGS},
    "scenarios": set(ROOMS),
}
LIBRARY_ROOMS = {"mininet": "testbed", "docker": "testbed", "ryu": "controller"}
MODULES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def imported(path: Path) -> Iterator[str]:
    """The first part of every imported name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_dependencies_point_down_only(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    assert set(imported(path)) & set(ROOMS) <= MAY_IMPORT[room]


@pytest.mark.parametrize("library", LIBRARY_ROOMS)
def test_large_libraries_stay_in_their_room(library: str) -> None:
    users = [path for path in MODULES if library in imported(path)]
    rooms = {path.relative_to(ROOT).parts[0] for path in users}
    assert rooms == {LIBRARY_ROOMS[library]}


def test_ryu_is_known_to_two_modules() -> None:
    users = [name(path) for path in MODULES if "ryu" in imported(path)]
    assert users == ["controller/__main__.py", "controller/app.py"]


def test_the_agent_needs_the_standard_library_alone() -> None:
    agent = ROOT / "traffic_gen" / "agents" / "agent.py"
    assert set(imported(agent)) <= sys.stdlib_module_names


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_modules_stay_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 480


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("*.py")), ids=name)
def test_tests_never_sleep(path: Path) -> None:
    calls = [
        node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
    ]
    assert not [call for call in calls if isinstance(call, ast.Attribute) and call.attr == "sleep"]
