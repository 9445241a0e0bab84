"""Architecture rules: imports point down only, and few modules import a large library."""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
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
LIBRARY_ROOMS = {
    "mininet": "testbed",
    "docker": "testbed",
    "ryu": "controller",
    "duckdb": "results",
    "jinja2": "results",
}
# Parts of each room (top-level package), bottom to top: a part may import itself and earlier ones.
PARTS = {
    "linux": "files machine processes network",
    "model": "arrays errors sweep fabric routing faults workload measurement job prediction "
    "training",
    "testbed": "virtual_machine nodes fabric testbed programs faults instruments host",
    "controller": "journal forwarding interfaces southbound detection rollout "
    "reconciler app __main__",
    "traffic_gen": "workloads traces agents probes iperf3 generators",
    "results": "verdicts store documents tables figures report",
    "scenarios": "library file_formats planning loader execution sweep studies benchmarks cli "
    "notebook __main__",
}
MODULES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def imported_names(path: Path) -> Iterator[str]:
    """Yield every imported module, with the name imported from it: `a.b.c`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported(path: Path) -> Iterator[str]:
    """The first part of every imported name."""
    yield from (found.partition(".")[0] for found in imported_names(path))


def python_commands(path: Path) -> Iterator[list[ast.expr]]:
    """Yield the words of every command that begins with a Python interpreter."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.List | ast.Tuple) and node.elts:
            program = ast.unparse(node.elts[0]).strip("'\"")
            if program.endswith(("sys.executable", "/python")):
                yield node.elts


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def in_parts(path: Path) -> bool:
    """Whether a module is in a part of a room that has parts."""
    room, *inside = path.relative_to(ROOT).parts
    return room in PARTS and inside != ["__init__.py"]


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_dependencies_point_down_only(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    assert set(imported(path)) & set(ROOMS) <= MAY_IMPORT[room]


@pytest.mark.parametrize("path", [m for m in MODULES if in_parts(m)], ids=name)
def test_dependencies_point_down_inside_a_room(path: Path) -> None:
    room, part = path.relative_to(ROOT).with_suffix("").parts[:2]
    order = PARTS[room].split()
    known = set(order[: order.index(part) + 1])
    found = [one.split(".") for one in imported_names(path) if one.startswith(f"{room}.")]
    assert {parts[1] for parts in found} <= known


def folder(parts: tuple[str, ...]) -> tuple[str, ...]:
    """The folder of a module or of a name in it; rooms themselves have parts, not folders."""
    while len(parts) > 1 and not ROOT.joinpath(*parts).is_dir():
        parts = parts[:-1]
    return parts if len(parts) > 1 else ()


def test_no_two_folders_import_each_other() -> None:
    """Not even through others: a folder and the folders inside it are layers, too."""
    graph: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for path in MODULES:
        own = folder(path.relative_to(ROOT).parent.parts)
        names = {folder(tuple(found.split("."))) for found in imported_names(path)}
        graph.setdefault(own, set()).update(names - {own, ()})
    graph.pop((), None)
    assert list(TopologicalSorter(graph).static_order())


def test_rooms_stay_small() -> None:
    sizes = Counter(path.parent for path in MODULES if not path.stem.startswith("__"))
    assert {str(room): size for room, size in sizes.items() if size > 13} == {}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_at_most_seven_rooms_inside(room: str) -> None:
    """`scenarios/library/`, what comes with Railbed, is no package."""
    inside = sorted(path.parent.name for path in (ROOT / room).glob("*/__init__.py"))
    assert inside[7:] == []


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_the_map_names_every_module(path: Path) -> None:
    folder, stem = path.parent.relative_to(ROOT), path.stem
    rows = (ROOT / "docs" / "explanation" / "architecture.md").read_text().splitlines()
    row = next((row for row in rows if row.startswith(f"| `{folder}/` |")), "")
    assert stem.startswith("__") or f"`{stem}`" in row


@pytest.mark.parametrize("library", LIBRARY_ROOMS)
def test_large_libraries_stay_in_their_room(library: str) -> None:
    users = [path for path in MODULES if library in imported(path)]
    rooms = {path.relative_to(ROOT).parts[0] for path in users}
    assert rooms == {LIBRARY_ROOMS[library]}


def test_ryu_is_known_to_two_modules() -> None:
    users = [name(path) for path in MODULES if "ryu" in imported(path)]
    assert users == ["controller/__main__.py", "controller/app.py"]


def test_the_agent_needs_the_standard_library_alone() -> None:
    folder = ROOT / "traffic_gen" / "agents"
    found = {*imported_names(folder / "agent.py"), *imported_names(folder / "transfers.py")}
    others = {one for one in found if one.partition(".")[0] not in sys.stdlib_module_names}
    assert {one.rpartition(".")[0] for one in others} == {"traffic_gen.agents.transfers"}


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_modules_stay_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 480


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("*.py")), ids=name)
def test_tests_never_sleep(path: Path) -> None:
    calls = [
        node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
    ]
    assert not [call for call in calls if isinstance(call, ast.Attribute) and call.attr == "sleep"]


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_no_python_imports_from_the_current_folder(path: Path) -> None:
    """Root would execute what anybody has left there (`-P`, or `-I`, which implies it)."""
    for command in python_commands(path):
        assert ast.unparse(command[1]) in ("'-P'", "'-I'", "'-IS'"), ast.unparse(command[0])
