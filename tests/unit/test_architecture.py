"""Architecture rules: imports point down only, and few modules import a large library."""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path

from commands.app import COMMANDS

ROOT = Path(__file__).parents[2]
ROOMS = (
    *("linux", "model", "testbed", "controller", "traffic_gen", "results"),
    *("scenarios", "execution", "studies", "commands"),
)
SIBLINGS = ("testbed", "controller", "traffic_gen", "results")
MAY_IMPORT = {
    "model": {"model"},
    "linux": {"linux", "model"},
    **{room: {"linux", "model", room} for room in SIBLINGS},
    **{room: set(ROOMS[: ROOMS.index(room) + 1]) for room in ROOMS[ROOMS.index("scenarios") :]},
}
LIBRARY_ROOMS = {
    # `studies` compares Railbed with plain Mininet.
    "mininet": {"testbed", "studies"},
    "docker": {"testbed"},
    "ryu": {"controller"},
    "duckdb": {"results"},
    "jinja2": {"results"},
}
# Parts of each room (top-level package), bottom to top: a part may import itself and earlier ones.
PARTS = {
    "linux": "files machine processes network",
    "model": "sentences arrays errors sweep fabric routing faults workload measurement job "
    "prediction training",
    "testbed": "virtual_machine nodes fabric testbed programs faults instruments host",
    "controller": "journal planner southbound detection rollout reconciler app __main__",
    "traffic_gen": "workloads traces agents probes iperf3 generators",
    "results": "store verdicts sections figures render report",
    "scenarios": "library format library_files scenario planning resolve load",
    "execution": "cases machine_costs faults link_check path_check program run "
    "virtual_clock sweep session live",
    "studies": "decision paper twins benchmarks",
}
# A module of fewer lines has two users, or is an entry point.
LEAST_LINES = 80
MODULES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
IMPORTED: dict[Path, list[str]] = {}


def imported_names(path: Path) -> list[str]:
    """Return every imported module, with the name imported from it: `a.b.c`."""
    if path not in IMPORTED:
        IMPORTED[path] = list(_imported_names(ast.parse(path.read_text())))
    return IMPORTED[path]


def _imported_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported(path: Path) -> set[str]:
    """The first part of every imported name."""
    return {one.partition(".")[0] for one in imported_names(path)}


def module_of(imported_name: str) -> str:
    """The module of an imported name; empty if it is none of the product's."""
    while imported_name:
        place = ROOT.joinpath(*imported_name.split("."))
        if place.with_suffix(".py").is_file() or (place / "__init__.py").is_file():
            return imported_name
        imported_name = imported_name.rpartition(".")[0]
    return ""


def dotted(path: Path) -> str:
    """The name by which a module is imported."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def import_graph() -> dict[str, set[str]]:
    """Return the modules that each module of the product imports."""
    return {
        dotted(path): {module_of(one) for one in imported_names(path)} - {dotted(path), ""}
        for path in MODULES
    }


def is_entry_point(path: Path) -> bool:
    """Whether a module is a program, or the module of a command."""
    is_command = path.parent.name == "commands" and path.stem in COMMANDS
    return is_command or path.stem == "__main__" or '__name__ == "__main__"' in path.read_text()


def python_commands(path: Path) -> Iterator[list[ast.expr]]:
    """Yield the words of every command that begins with a Python interpreter."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.List | ast.Tuple) and node.elts:
            program = ast.unparse(node.elts[0]).strip("'\"")
            if program.endswith(("sys.executable", "/python")):
                yield node.elts


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def part_of(path: Path) -> str:
    """The part of its room that a module is in; empty in a room without parts."""
    room, *inside = path.relative_to(ROOT).with_suffix("").parts
    return inside[0] if room in PARTS and inside != ["__init__"] else ""


def test_dependencies_point_down_only() -> None:
    for path in MODULES:
        room = path.relative_to(ROOT).parts[0]
        assert imported(path) & set(ROOMS) <= MAY_IMPORT[room], name(path)


def test_dependencies_point_down_inside_a_room() -> None:
    for path in MODULES:
        if part := part_of(path):
            room = path.relative_to(ROOT).parts[0]
            order = PARTS[room].split()
            inside = (one.split(".") for one in imported_names(path) if one.startswith(f"{room}."))
            known = set(order[: order.index(part) + 1])
            assert {words[1] for words in inside} <= known, name(path)


def test_no_two_modules_import_each_other() -> None:
    """Not even through others, nor inside a function."""
    assert list(TopologicalSorter(import_graph()).static_order())


def test_a_small_module_has_two_users_or_is_an_entry_point() -> None:
    """Any other one stands with its user, or with a sibling of the same idea."""
    users = Counter(chain.from_iterable(import_graph().values()))
    alone = [
        f"{name(path)} has {users[dotted(path)]} users"
        for path in MODULES
        if path.stem != "__init__" and users[dotted(path)] < 2 and not is_entry_point(path)
        if len(path.read_text().splitlines()) < LEAST_LINES
    ]
    assert alone == []


def test_large_libraries_stay_in_their_room() -> None:
    for library, rooms in LIBRARY_ROOMS.items():
        users = [path for path in MODULES if library in imported(path)]
        assert {path.relative_to(ROOT).parts[0] for path in users} == rooms, library


def test_ryu_is_known_to_two_modules() -> None:
    users = [name(path) for path in MODULES if "ryu" in imported(path)]
    assert users == ["controller/__main__.py", "controller/app.py"]


def test_the_agent_needs_the_standard_library_alone() -> None:
    folder = ROOT / "traffic_gen" / "agents"
    parts = [folder / "agent.py", folder / "transfers.py", *sorted((folder / "roce").glob("*.py"))]
    names = {one for part in parts for one in imported_names(part)}
    others = {one for one in names if one.partition(".")[0] not in sys.stdlib_module_names}
    assert {module_of(one) for one in others} <= {dotted(part) for part in parts}


def test_the_map_names_every_folder() -> None:
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    folders = {path.parent.relative_to(ROOT) for path in MODULES}
    assert [str(one) for one in sorted(folders) if f"- `{one}/`: " not in text] == []


def test_tests_never_sleep() -> None:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text()))
        calls = [node.func for node in nodes if isinstance(node, ast.Call)]
        sleeps = [one for one in calls if isinstance(one, ast.Attribute) and one.attr == "sleep"]
        assert not sleeps, name(path)


def test_no_python_imports_from_the_current_folder() -> None:
    """Root would execute what anybody has left there (`-P`, or `-I`, which implies it)."""
    for path in MODULES:
        for command in python_commands(path):
            assert ast.unparse(command[1]) in ("'-P'", "'-I'", "'-IS'"), name(path)
