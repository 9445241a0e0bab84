"""Commands under the virtual clock: what is computed, kept and handed back, with a fake machine."""

import json
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from commands.bench import bench
from commands.notebook import load as load_setup
from execution.virtual_clock import command
from execution.virtual_clock.command import (
    EndedInside,
    VirtualCommand,
    bench_virtually,
    run_virtually,
    verify_virtually,
)
from model.errors import InputError
from results.store.runs import digest_of
from scenarios.format.document import parser
from scenarios.format.training import SHIPPED
from scenarios.library_files import LIBRARY
from scenarios.load import load
from testbed.virtual_machine import cache
from testbed.virtual_machine.guest import Ended
from testbed.virtual_machine.image import Program

QUICKSTART = load(LIBRARY / "quickstart.yaml")


@dataclass
class FakeMachine:
    """Executes jobs without a machine: one run each, and this output and exit code."""

    exit_code: int = 0
    output: bytes = b'{"verdict": "pass"}'
    message: str = ""
    jobs: list[str] = field(default_factory=list)
    files: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[Path, Path] = field(default_factory=dict)
    meanwhile: Callable[[], object] = lambda: None
    silent: Collection[int] = ()

    def execute(
        self,
        job: str,
        files: Mapping[str, str],
        back: Path,
        *,
        shows_output: bool,
        silent: Collection[int],
    ) -> Ended:
        assert not shows_output
        self.silent = silent
        self.jobs.append(job)
        self.files = files
        self.meanwhile()
        run = back / "runs" / "20260101-000043-quickstart-ab12"
        run.mkdir(parents=True)
        (run / "scenario.yaml").write_text("".join(files.values()))
        (run / "result.json").write_text('{"verdict": "pass"}')
        (run / "state.json").write_text('{"state": "complete"}')
        return Ended(self.exit_code, self.output, self.message)

    def initrd_with(self, program: Program, copies: Mapping[Path, Path], _: Path) -> Path:
        self.copies = copies
        return program.initrd


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """The fake machine, its image, and an empty cache."""
    found = FakeMachine()
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "digest").write_text("0123456789ab")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(command, "Guest", lambda *_: found)
    monkeypatch.setattr(Program, "initrd_with", lambda *its: found.initrd_with(*its))
    monkeypatch.setattr(command, "program", lambda: Program(tmp_path / "image"))
    return found


def test_a_run_is_computed_once_and_kept_twice(machine: FakeMachine, tmp_path: Path) -> None:
    results = [run_virtually(QUICKSTART, tmp_path, fresh=False) for _ in range(2)]
    assert len(machine.jobs) == 1
    assert results[0]["clock"] == results[1]["clock"]
    assert results[0]["clock"]["image"] == "0123456789ab"
    assert results[0]["run_id"] != results[1]["run_id"]
    kept = Path(results[1]["folder"])
    assert (kept.parent, (kept / "scenario.yaml").read_text()) == (tmp_path, QUICKSTART.text)
    assert json.loads((kept / "result.json").read_text()) == results[1]


def test_a_store_that_cannot_be_written_is_refused_before_the_machine_boots(
    machine: FakeMachine, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file: runs cannot be stored: Not a directory"):
        run_virtually(QUICKSTART, tmp_path / "file", fresh=False)
    assert machine.jobs == []


@pytest.mark.parametrize(("domains", "memory_mib"), [(4, 4096), (32, 4096), (128, 19456)])
def test_a_large_fabric_gets_more_memory(
    monkeypatch: pytest.MonkeyPatch,
    machine: FakeMachine,
    tmp_path: Path,
    domains: int,
    memory_mib: int,
) -> None:
    made: list[int] = []

    def guest(_kernel: Path, _initrd: Path, _tree: Path, memory_mib: int) -> FakeMachine:
        made.append(memory_mib)
        return machine

    monkeypatch.setattr(command, "Guest", guest)
    overrides = [f"fabric.domains={domains}", "fabric.domain_size=8", "allow_overload=true"]
    scenario = load(LIBRARY / "quickstart.yaml", overrides)
    run_virtually(scenario, tmp_path / "runs", fresh=False)
    assert made == [memory_mib]


@pytest.fixture
def replay(tmp_path: Path) -> Path:
    """A scenario with a trace of many files, one of a single file, and a configuration."""
    for name in ("layer", "pipeline.goal"):
        (shutil.copytree if name == "layer" else shutil.copy)(
            LIBRARY / "traces" / name, tmp_path / name
        )
    shutil.copy(SHIPPED / "gpt-146b.yaml", tmp_path / "own.yaml")
    path = tmp_path / "replay.yaml"
    path.write_text(
        "fabric: {kinds: rail-only, domains: 2, domain_size: 2, platform: dgx-h100,"
        " bandwidth_scale: 20000}\n"
        "workloads:\n"
        "  - {trace: layer, size_scale: 100}\n"
        "  - {trace: layer/layer.2.et, size_scale: 100}\n"
        "  - {trace: pipeline.goal, size_scale: 100}\n"
        "  - {iteration: own.yaml, pipeline: 1}\n"
    )
    return path


def test_files_that_a_scenario_names_go_with_it(
    machine: FakeMachine, replay: Path, tmp_path: Path
) -> None:
    scenario = load(replay)
    result = run_virtually(scenario, tmp_path / "runs", fresh=False)
    ranks = [f"layer.{rank}.et" for rank in range(4)]
    assert {str(inside): file.read_bytes() for inside, file in machine.copies.items()} == {
        **{
            f"/files/0/layer/{name}": (replay.parent / "layer" / name).read_bytes()
            for name in ranks
        },
        **{f"/files/1/{name}": (replay.parent / "layer" / name).read_bytes() for name in ranks},
        "/files/2/pipeline.goal": (replay.parent / "pipeline.goal").read_bytes(),
        "/files/3/own.yaml": (replay.parent / "own.yaml").read_bytes(),
    }
    inside = parser("rt").load(machine.files["scenario.yaml"])
    assert [next(iter(entry.values())) for entry in inside["workloads"]] == [
        "/files/0/layer",
        "/files/1/layer.2.et",
        "/files/2/pipeline.goal",
        "/files/3/own.yaml",
    ]
    kept = (Path(result["folder"]) / "scenario.yaml").read_text()
    assert (kept, str(tmp_path / "pipeline.goal") in kept) == (scenario.text, True)
    assert result["scenario_digest"] == digest_of(kept)


def test_a_changed_file_is_another_run(machine: FakeMachine, replay: Path, tmp_path: Path) -> None:
    for text in ("", "// another comment\n"):
        with (tmp_path / "pipeline.goal").open("a") as trace:
            trace.write(text)
        run_virtually(load(replay), tmp_path / "runs", fresh=False)
    assert len(machine.jobs) == 2


def test_a_run_whose_files_change_meanwhile_is_not_kept(
    machine: FakeMachine, replay: Path, tmp_path: Path
) -> None:
    machine.meanwhile = lambda: shutil.copy(LIBRARY / "quickstart.yaml", tmp_path / "own.yaml")
    scenario = load(replay)
    run_virtually(scenario, tmp_path / "runs", fresh=False)
    shutil.copy(SHIPPED / "gpt-146b.yaml", tmp_path / "own.yaml")
    run_virtually(scenario, tmp_path / "runs", fresh=False)
    assert len(machine.jobs) == 2


def test_a_fresh_run_is_computed_again(machine: FakeMachine, tmp_path: Path) -> None:
    for _ in range(2):
        run_virtually(QUICKSTART, tmp_path, fresh=True)
    assert len(machine.jobs) == 2


def test_a_run_from_python_is_silent_unless_it_is_to_show_progress(
    machine: FakeMachine, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for seed, progress, silent in ((1, False, (0, 1)), (2, True, ())):
        changes = {"machine_seed": seed}
        load_setup("quickstart", changes, "virtual").run(store=tmp_path, progress=progress)
        assert tuple(machine.silent) == silent
        assert ("booting the virtual machine" in capfd.readouterr().err) is progress


def test_a_path_check_has_its_clock(machine: FakeMachine, tmp_path: Path) -> None:
    seeded = load(LIBRARY / "quickstart.yaml", ["machine_seed=7"])
    result = verify_virtually(seeded, tmp_path, fresh=False)
    assert (result["verdict"], result["clock"]["seed"]) == ("pass", 7)
    assert len(result["clock"]["records"]) == 16
    assert '-m commands "verify" "$RAILBED_HANDED/scenario.yaml"' in machine.jobs[0]


def test_a_benchmark_hands_back_its_rows_and_runs(machine: FakeMachine, tmp_path: Path) -> None:
    machine.output, machine.exit_code = b'{"rows": [{"gpus": 4}]}', 1
    exit_code, result = bench_virtually("agents", tmp_path, fresh=False)
    assert (exit_code, result["rows"]) == (1, [{"gpus": 4}])
    (run,) = tmp_path.glob("*-quickstart-*")
    assert json.loads((run / "result.json").read_text())["clock"]["kind"] == "virtual"


def test_an_early_end_is_not_kept_but_its_records_are(machine: FakeMachine, tmp_path: Path) -> None:
    machine.exit_code, machine.message = 4, "no carrier"
    for _ in range(2):
        with pytest.raises(EndedInside) as caught:
            run_virtually(QUICKSTART, tmp_path, fresh=False)
        said, _, folder = str(caught.value).rpartition(" in ")
        assert said == (
            "virtual clock: the command ended with exit code 4: no carrier;"
            " the records until then are"
        )
        assert (Path(folder) / "scenario.yaml").read_text() == QUICKSTART.text
    assert len(machine.jobs) == len(list(tmp_path.glob("*-quickstart-*"))) == 2


@pytest.mark.parametrize("output", [b"Traceback \xff", b"[]"])
@pytest.mark.parametrize(("inside", "here"), [(2, 2), (3, 3), (4, 4), (137, 4), (1, 4), (0, 4)])
def test_a_command_without_a_result_is_an_error_of_ours(
    machine: FakeMachine, tmp_path: Path, inside: int, here: int, output: bytes
) -> None:
    """Python's own failures have exit code 1, a killed shell's command 137."""
    machine.exit_code, machine.output = inside, output
    for _ in range(2):
        with pytest.raises(EndedInside, match=f"exit code {inside}: ") as caught:
            run_virtually(QUICKSTART, tmp_path, fresh=False)
        assert caught.value.exit_code == here
    assert len(machine.jobs) == 2


def test_rows_of_a_benchmark_that_ends_early_are_printed(
    machine: FakeMachine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.output, machine.exit_code = b'{"rows": [{"gpus": 4}]}', 4
    with pytest.raises(EndedInside):
        bench("capacity", as_json=True, store=tmp_path, clock="virtual")
    printed = json.loads(capsys.readouterr().out)
    assert (printed["rows"], printed["clock"]["kind"]) == ([{"gpus": 4}], "virtual")
    (run,) = tmp_path.glob("*-quickstart-*")
    assert json.loads((run / "result.json").read_text())["clock"]["kind"] == "virtual"


def test_a_scenario_with_a_long_name_is_handed_over_under_a_short_one(
    machine: FakeMachine, tmp_path: Path
) -> None:
    """QEMU takes names of 55 characters, `opt/railbed/` included."""
    path = tmp_path / f"{'a' * 40}.yaml"
    shutil.copy(LIBRARY / "quickstart.yaml", path)
    run_virtually(load(path), tmp_path, fresh=False)
    ((name, text),) = machine.files.items()
    assert len(f"opt/railbed/{name}") <= 55
    (tmp_path / "inside.yaml").write_text(text)
    inside = load(tmp_path / "inside.yaml")
    assert (inside.name, inside.fabrics, inside.cases) == (
        "a" * 40,
        load(path).fabrics,
        load(path).cases,
    )


@pytest.mark.usefixtures("machine")
def test_a_key_is_of_everything_that_a_result_depends_on(tmp_path: Path) -> None:
    one = VirtualCommand(("run", "x"), {"x": "text"})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "digest").write_text("ba9876543210")
    others = [
        replace(one, words=("verify", "x")),
        replace(one, files={"x": "other text"}),
        replace(one, files={"y": "text"}),
        replace(one, seed=1),
        replace(one, memory_mib=8192),
        replace(one, machine=Program(tmp_path / "other")),
        replace(one, copies={Path("/files/0/a"): tmp_path / "other" / "digest"}),
    ]
    assert len({command.key for command in (one, *others)}) == 8
    assert VirtualCommand(("run", "x"), {"x": "text"}).key == one.key
