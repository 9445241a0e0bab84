"""Algorithms of a user's own: the documented example, installed packages, and what is refused."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import notebook
from commands.app import main, plugins_first
from commands.plugins import enter_installed, enter_plugins, require_built_in
from execution.sweep.points import files_of_scenario, stored_scenario
from linux.files.program_files import ROOT
from model.errors import InputError
from model.fabric.build import build_topology
from model.fabric.health import Epoch
from model.fabric.shaping import wire_bytes
from model.fabric.spec import COMPARED, FabricKind
from model.prediction.closed_forms import Grid
from model.prediction.fluid import path_class, predict
from model.sweep import Point
from model.workload.transfers.collective import Collective
from scenarios.library_files import LIBRARY
from scenarios.load import load
from tests.unit.fabrics import spec, transfer_paths
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS, PLUGINS
from traffic_gen.workloads.sized_collective import SizedCollective

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "extending.md"
NAMED = (Collective.ALL_GATHER, "pairwise")
SCENARIO = """\
fabric: {domains: 4, domain_size: 2, platform: dgx-h100, bandwidth_scale: 20000}
workloads:
  - {collective: all-gather, algorithm: pairwise, size: 12 MB}
"""


@pytest.fixture(autouse=True)
def only_known_ones_afterwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    known = dict(ALGORITHMS)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    yield
    os.environ.pop("RAILBED_PLUGIN", None)
    ALGORITHMS.clear()
    ALGORITHMS.update(known)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The file of the guide's example."""
    found = re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found is not None
    (tmp_path / "mine.py").write_text(found[1])
    return tmp_path / "mine.py"


def ended(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr("sys.argv", ["railbed", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


@pytest.mark.parametrize("first", [True, False])
def test_the_example_is_checked_and_planned_by_the_command(
    example: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    first: bool,
) -> None:
    scenario = example.parent / "x.yaml"
    scenario.write_text(SCENARIO)
    command, plugin = ["check", str(scenario)], ["--plugin", str(example)]
    assert ended(monkeypatch, *(plugin + command if first else command + plugin)) == 0
    said = "  all-gather/pairwise: 12000000 bytes"
    assert said in capsys.readouterr().out


def test_a_plugin_may_have_data_classes(example: Path) -> None:
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    text += example.read_text() + "\n@dataclass\nclass Order:\n    offset: int\n"
    example.write_text(text)
    enter_plugins([example])
    assert NAMED in ALGORITHMS


def test_without_the_example_its_name_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.yaml").write_text(SCENARIO)
    assert ended(monkeypatch, "check", str(tmp_path / "x.yaml")) == 2
    assert "unknown algorithm 'pairwise' of all-gather" in capsys.readouterr().err


@pytest.mark.parametrize("kind", COMPARED)
@pytest.mark.parametrize("shape", [(2, 2), (4, 4), (3, 1)])
def test_the_example_is_proved_and_its_closed_form_holds(
    example: Path, kind: FabricKind, shape: tuple[int, int]
) -> None:
    enter_plugins([example])
    fabric = spec(kind, *shape, spines=shape[0])
    topology, schedule = build_topology(fabric), SizedCollective(*NAMED, shape, 40_000_000).steps()
    rates = fabric.emulated_hb_bps / 8, fabric.emulated_nic_bps / 8
    grid, form = Grid(shape[1], shape[0], *rates), ALGORITHMS[NAMED].closed_form
    assert schedule.transfers.longest_chain == form.steps(grid)
    assert len(schedule.transfers) == form.transfers(grid)
    paths = transfer_paths(schedule.transfers, Epoch(topology), topology.job_gpus)
    latency_s = {path_class(hops): 0.0 for hops in paths if hops}
    closed_s = form.completion_s(kind, grid, wire_bytes(1) * schedule.size_bytes)
    found_s = predict(schedule, [Epoch(topology)], latency_s).completion_s
    assert found_s == pytest.approx(closed_s, rel=0.02)


def test_processes_that_a_command_starts_have_its_plugins(
    example: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = example.parent / "x.yaml"
    scenario.write_text(SCENARIO)
    enter_plugins([example])
    del ALGORITHMS[NAMED]
    assert ended(monkeypatch, "check", str(scenario)) == 0
    assert ": ok" in capsys.readouterr().out


def test_the_virtual_clock_refuses_a_plugins_algorithm(example: Path) -> None:
    scenario = example.parent / "x.yaml"
    scenario.write_text(SCENARIO)
    enter_plugins([example])
    with pytest.raises(InputError, match=r"x.yaml:3 workloads.0: 'pairwise' is from a plugin"):
        require_built_in(load(scenario))
    require_built_in(load(LIBRARY / "quickstart.yaml"))


@pytest.mark.parametrize(
    ("asked", "option"),
    [
        (["--clock", "virtual"], "--clock virtual"),
        (["--executor", "ray"], "--executor ray"),
        (["--executor", "ray", "--clock", "virtual"], "--executor ray"),
    ],
)
def test_a_sweep_refuses_a_plugins_algorithm_before_any_point(
    example: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    asked: list[str],
    option: str,
) -> None:
    (example.parent / "x.yaml").write_text(SCENARIO)
    monkeypatch.chdir(example.parent)
    command = ["sweep", "x.yaml", "--over", "seed=1,2", "--plugin", str(example)]
    assert ended(monkeypatch, *command, *asked) == 2
    said = f"'pairwise' is from a plugin, which {option} cannot load (leave out {option})\n"
    assert capsys.readouterr().err == f"railbed: x.yaml:3 workloads.0: {said}"
    assert not (example.parent / "runs").exists()


def test_a_plugin_is_a_part_of_a_sweeps_points(example: Path) -> None:
    scenario = example.parent / "x.yaml"
    scenario.write_text(SCENARIO)
    plain = files_of_scenario(load(LIBRARY / "quickstart.yaml"))
    enter_plugins([example])
    assert files_of_scenario(load(LIBRARY / "quickstart.yaml")) == plain == ""
    with_plugin = files_of_scenario(load(scenario))
    assert with_plugin
    point = Point(1, (), scenario.read_text(), with_plugin)
    assert stored_scenario(scenario, point) == load(scenario)
    example.write_text(example.read_text() + "# changed\n")
    with pytest.raises(InputError) as caught:
        stored_scenario(scenario, point)
    assert str(caught.value) == (
        f"{scenario}: it, a file that it names, or a plugin has changed since the sweep began "
        "(start another sweep)"
    )
    example.unlink()
    with pytest.raises(InputError, match=rf"{example}: cannot be read: No such file"):
        stored_scenario(scenario, point)


@pytest.mark.usefixtures("installed")
def test_an_installed_package_is_a_part_of_a_sweeps_points(example: Path) -> None:
    enter_installed()
    assert PLUGINS[NAMED] == example


@pytest.fixture
def installed(example: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example as an installed package; its metadata."""
    metadata = example.parent / "mine-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[railbed.algorithms]\nmine = mine:ALGORITHMS\n")
    monkeypatch.syspath_prepend(example.parent)
    return metadata


@pytest.mark.usefixtures("installed")
def test_an_installed_package_needs_nothing_in_python(example: Path) -> None:
    scenario = example.parent / "x.yaml"
    scenario.write_text(SCENARIO)
    (case, *_) = notebook.load(scenario).scenario.cases
    assert case.name.endswith("all-gather/pairwise")


@pytest.mark.usefixtures("installed")
def test_an_installed_package_needs_no_option() -> None:
    enter_installed()
    enter_installed()
    assert SizedCollective(*NAMED, (2, 2), 1000).steps().algorithm == "pairwise"


def test_an_entry_point_that_leads_nowhere_is_told(installed: Path) -> None:
    (installed / "entry_points.txt").write_text("[railbed.algorithms]\nmine = mine:TABLE\n")
    with pytest.raises(InputError, match=r"railbed.algorithms: the entry point mine \(mine:TABLE"):
        enter_plugins([])


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("1 +", "raises SyntaxError: "),
        ("import nothing_of_the_kind", "raises ModuleNotFoundError: "),
        ("import sys; sys.exit(7)", "raises SystemExit: 7"),
        ("x = 1", "must define the dictionary ALGORITHMS"),
        ("ALGORITHMS = [1]", "ALGORITHMS must be a dictionary, got list"),
        ("ALGORITHMS = {'ring': 1}", "the key 'ring' must be a collective and a name"),
        (
            "from model.workload.transfers.collective import Collective as C\n"
            "ALGORITHMS = {(C.BROADCAST, 'mine'): print}",
            "'mine' must be an Algorithm, got builtin_function_or_method",
        ),
        *(
            (
                "from model.workload.transfers.collective import Collective as C\n"
                "from traffic_gen.workloads.algorithms.collectives import Algorithm, closed\n"
                f"ALGORITHMS = {{(C.BROADCAST, 'mine'): Algorithm(print, {arguments})}}",
                f"'mine' must have {said}",
            )
            for arguments, said in (
                ("print", "a ClosedForm, got builtin_function_or_method"),
                ("closed.RING, 0", "at least one slice, got 0"),
                ("closed.RING, 1.5", "at least one slice, got 1.5"),
            )
        ),
        (
            "from model.workload.transfers.collective import Collective as C\n"
            "from traffic_gen.workloads.algorithms.collectives import ALGORITHMS as known\n"
            "ALGORITHMS = {(C.ALL_REDUCE, 'ring'): known[C.ALL_GATHER, 'ring']}",
            "all-reduce already has an algorithm 'ring'",
        ),
    ],
)
def test_a_wrong_file_is_bad_input(tmp_path: Path, code: str, said: str) -> None:
    (tmp_path / "mine.py").write_text(code)
    with pytest.raises(InputError) as caught:
        enter_plugins([tmp_path / "mine.py"])
    assert f"{tmp_path}/mine.py: {said}" in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "domains"),
    [
        ("for domains in range(build.domains):", "for domains in {}[1]:", 5),
        ("shard = size / grid.n", "shard = size / {}[1]", 16),
    ],
)
def test_an_error_of_a_plugin_s_function_names_its_line(
    example: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    old: str,
    new: str,
    domains: int,
) -> None:
    lines = example.read_text().replace(old, new)
    example.write_text(lines)
    scenario = example.parent / "x.yaml"
    scenario.write_text(SCENARIO.replace("domains: 4", f"domains: {domains}"))
    assert ended(monkeypatch, "check", str(scenario), "--plugin", str(example)) == 2
    line = lines[: lines.index(new)].count("\n") + 1
    assert f"{example}:{line}: raises KeyError: 1 (see docs/" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "key", "kind", "domains"),
    [
        ("return grid.x", "return {} #", "completion_s", "real", 16),
        ("grid.n - 1)", "{})", "steps", "integral", 17),
        ("PAIRWISE)", "PAIRWISE, shards=lambda grid: {})", "shards", "integral", 18),
    ],
)
@pytest.mark.parametrize("returned", ["0", "-1", "float('nan')", "'text'", "None"])
def test_a_wrong_result_of_a_plugin_s_function_names_its_file(
    example: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    old: str,
    new: str,
    key: str,
    kind: str,
    domains: int,
    returned: str,
) -> None:
    example.write_text(example.read_text().replace(old, new.format(returned)))
    scenario = example.parent / "x.yaml"
    # Of their own for each function: what is known of a grid is kept.
    scenario.write_text(SCENARIO.replace("domains: 4", f"domains: {domains}"))
    assert ended(monkeypatch, "check", str(scenario), "--plugin", str(example)) == 2
    got = f"got {eval(returned)!r}"
    said = f"{example}: {key} must return a positive {kind} number, {got} (see docs/guides/"
    assert said in capsys.readouterr().err


def test_libraries_of_a_plugin_leave_nothing_at_the_end(tmp_path: Path) -> None:
    """DuckDB prints what the last search for garbage has not found."""
    plugin = tmp_path / "mine.py"
    plugin.write_text("import duckdb\nALGORITHMS = {}")
    program = [sys.executable, "-P", "-m", "commands", "--plugin", str(plugin), "check"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*program, "--help"], env=environment, capture_output=True, check=True)
    assert done.stderr == b""


def test_a_file_that_fails_leaves_no_module(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("1 / 0")
    sys.modules.pop("plugin_mine", None)
    with pytest.raises(InputError, match="raises ZeroDivisionError"):
        enter_plugins([tmp_path / "mine.py"])
    assert "plugin_mine" not in sys.modules


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing.py", "not found"),
        (f"{'a' * 300}.py", "not found"),
        ("mine.txt", "is not a Python file"),
        (".", "is not a Python file"),
    ],
)
def test_what_is_no_python_file_is_bad_input(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "mine.txt").write_text("x = 1")
    with pytest.raises(InputError, match=said):
        enter_plugins([tmp_path / name])


@pytest.mark.parametrize(
    ("given", "moved"),
    [
        ("run x --plugin a.py --json", "--plugin a.py run x --json"),
        ("run x --plugin=a.py --plugin b.py", "--plugin=a.py --plugin b.py run x"),
        ("exec x -- mine --plugin a.py", "exec x -- mine --plugin a.py"),
    ],
)
def test_the_option_may_stand_anywhere_before_a_command_of_the_users(
    given: str, moved: str
) -> None:
    assert plugins_first(given.split()) == moved.split()


def test_the_option_needs_a_file() -> None:
    with pytest.raises(InputError, match="--plugin: needs a file"):
        plugins_first(["check", "quickstart", "--plugin"])
