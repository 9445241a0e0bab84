"""The command `vm` keeps what the virtual machine hands back, beside the runs that are there."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import typer

from commands import vm as command
from commands.app import app
from model.errors import InputError
from results.store.runs import find_run, stored_runs

RUN = "20260101-000043-quickstart-ab12"


@pytest.fixture
def vm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Path], Any]], int]:
    """Call `vm` in an empty folder, with a machine whose folder `runs` is filled so."""
    monkeypatch.chdir(tmp_path)

    def called(fill: Callable[[Path], Any]) -> int:
        def machine(_tree: Path, _command: list[str], back: Path, **_: object) -> int:
            (back / "runs").mkdir()
            fill(back / "runs")
            return 7

        monkeypatch.setattr(command, "execute_in_copy", machine)
        with pytest.raises(typer.Exit) as ended:
            command.vm(["true"])
        return ended.value.exit_code

    return called


def make_run(folder: Path, number: int = 1, name: str = RUN) -> None:
    """Make a run as the machine does, which has no other runs."""
    run = folder / name
    run.mkdir(parents=True)
    (run / "state.json").write_text(json.dumps({"state": "complete", "number": number}))


def test_a_link_to_a_store_and_a_stores_mode_stay(
    tmp_path: Path, vm: Callable[[Callable[[Path], Any]], int]
) -> None:
    store = tmp_path / "elsewhere"
    store.mkdir(0o700)
    (tmp_path / "runs").symlink_to(store)
    assert vm(lambda _: None) == 7
    assert vm(make_run) == 7
    assert (tmp_path / "runs").is_symlink()
    assert [run.name for run in store.iterdir()] == [RUN]
    assert store.stat().st_mode & 0o777 == 0o700


def test_runs_become_the_latest_and_replace_none(
    tmp_path: Path,
    vm: Callable[[Callable[[Path], Any]], int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = tmp_path / "runs"
    make_run(store, 5, "20251231-000000-golden-cd34")
    vm(make_run)
    assert find_run(store, "latest").name == RUN
    vm(make_run)
    assert len(stored_runs(store)) == 3
    latest = find_run(store, "latest").name
    assert "-quickstart-" in latest
    assert capsys.readouterr().err == f"runs/{RUN} exists: stored as runs/{latest}.\n"


def test_a_sweep_and_other_folders_come_back_too(
    tmp_path: Path, vm: Callable[[Callable[[Path], Any]], int]
) -> None:
    def fill(runs: Path) -> None:
        for number in (1, 2):
            make_run(runs / "sweeps" / "one" / f"00{number}", number, f"{RUN[:-1]}{number}")
        (runs / "machine").mkdir()
        (runs / "machine" / "machine.json").write_text("{}")
        (runs / "machine" / "link").symlink_to("/nowhere")
        (runs / "notes").write_text("")

    make_run(tmp_path / "runs", 5)
    (tmp_path / "runs" / "notes").write_text("kept")
    for _ in range(2):
        vm(fill)
    names = sorted(place.name for place in (tmp_path / "runs").iterdir())
    heads = [name.partition("-")[0] for name in names]
    assert heads == ["20260101", "machine", "machine", "notes", "notes", "notes", "sweeps"]
    assert (tmp_path / "runs" / "notes").read_text() == "kept"
    assert len(list((tmp_path / "runs" / "sweeps").iterdir())) == 2
    numbers = [
        json.loads((run / "state.json").read_text())["number"]
        for run in stored_runs(tmp_path / "runs")
    ]
    assert numbers == [5, 6, 7, 8, 9]


def test_a_store_that_cannot_be_written_is_refused_before_the_machine_boots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").touch()
    monkeypatch.setattr(command, "execute_in_copy", lambda *_, **__: pytest.fail("it boots"))
    with pytest.raises(InputError, match=r"runs: runs cannot be stored.*change to a folder"):
        command.vm(["true"])


@pytest.mark.parametrize(
    ("words", "boots"),
    [
        (["--unknown", "--", "ls"], False),
        (["--memroy", "4096", "ls"], False),
        (["ls", "-l"], True),
        (["--docker", "--", "ls", "-l"], True),
    ],
)
def test_an_unknown_option_is_refused_before_the_machine_boots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], boots: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    machine = Mock(return_value=0)
    monkeypatch.setattr(command, "execute_in_copy", machine)
    monkeypatch.setattr(command, "copy_all", lambda *_: {})
    monkeypatch.setattr(command, "available_mib", lambda: 1e6)
    with nullcontext() if boots else pytest.raises(InputError, match="is an unknown option"):
        app(["vm", *words], standalone_mode=False)
    assert machine.called == boots
