"""Stored runs and sweeps: damaged, of other versions, in order of their numbers."""

import errno
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from rich.console import Console

from commands.compare import compared
from commands.list import list_all
from commands.output import out, printed_whole
from execution import run as execution
from execution.cases.progress import SILENT
from execution.run import environment, recording_early_end
from linux.files import user_files
from model.errors import EXIT_INTERRUPTED, EmulationError, InputError, Interrupted
from model.fabric.spec import Datapath
from model.sweep import CLOCK_VARIABLE
from results.render.terminal import print_sections
from results.sections.run import run_sections
from results.store import sweeps
from results.store.records import REPORT, Bug, report_bug
from results.store.runs import (
    DEFAULT_STORE,
    RunFolder,
    copy_into_store,
    find_run,
    number_of,
    read_result,
    read_state,
    stored_runs,
)
from results.store.sweeps import begin_sweep, find_sweep
from results.verdicts.several_runs import sweep_object
from scenarios.library_files import LIBRARY, library
from scenarios.load import load
from testbed.nodes.gpu_proxies import ProxyKind
from tests.playground import SAMPLE
from tests.unit.run_folders import begun_run
from tests.unit.test_sweeping import Fake, a_sweep, run

RESULT = json.loads(SAMPLE.read_text())


def complete(store: Path, run_id: str) -> Path:
    folder = begun_run(store, run_id, "", {})
    folder.complete({**RESULT, "run_id": run_id})
    return folder.path


def listed(store: Path) -> list[str]:
    with redirect_stdout(io.StringIO()) as text:
        list_all(store)
    return text.getvalue().partition("\nRuns")[2].splitlines()[1:]


@pytest.mark.parametrize("name", ["missing", "file"])
def test_a_named_store_that_is_no_folder_is_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=f"{name}: is not a folder of runs"):
        listed(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert listed(DEFAULT_STORE) == ["  none yet"]
    DEFAULT_STORE.touch()
    with pytest.raises(InputError, match="runs: is not a folder of runs"):
        listed(DEFAULT_STORE)


def test_descriptions_of_the_library_are_in_one_column(tmp_path: Path) -> None:
    with redirect_stdout(io.StringIO()) as text:
        list_all(tmp_path)
    lines = text.getvalue().partition("\nRuns")[0].splitlines()[1:]
    column = max(len(path.stem) for path in library()) + 2
    assert {line[column] for line in lines} == {" "}
    assert " " not in {line[column + 1] for line in lines}
    names = [line.split()[0] for line in lines]
    assert names == sorted(names)


@pytest.mark.parametrize(
    ("ended", "cause"),
    [(KeyboardInterrupt, "interrupted"), (SystemExit, "nobody read its output any more")],
)
def test_a_run_that_its_user_ends_says_how(
    tmp_path: Path, ended: type[BaseException], cause: str
) -> None:
    """Rich exits at a broken pipe."""
    folder = begun_run(tmp_path, "20260101-000000-a-0000", "", {})
    with pytest.raises(ended), recording_early_end(folder):
        raise ended
    with pytest.raises(InputError, match=f"the run is incomplete: {cause}$"):
        read_result(folder.path)


@pytest.mark.parametrize("error", [RuntimeError("of a library"), BrokenPipeError("of its socket")])
def test_a_run_is_interrupted_also_if_a_library_answers_with_an_error_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("execution.run.is_ending", lambda: True)
    folder = begun_run(tmp_path, "20260101-000000-a-0000", "", {})
    with pytest.raises(KeyboardInterrupt), recording_early_end(folder):
        raise error
    assert read_state(folder.path)["cause"] == "interrupted"
    assert not (folder.path / REPORT).exists()


def test_what_fails_after_an_interruption_is_told_and_no_next_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands go on with the next run after an `EmulationError`."""
    monkeypatch.setattr("execution.run.is_ending", lambda: True)
    folder = begun_run(tmp_path, "20260101-000000-a-0000", "", {})
    told = "interrupted; then process 7: did not end\n.*railbed clean"
    with pytest.raises(Interrupted, match=told) as raised, recording_early_end(folder):
        raise EmulationError("process 7: did not end")
    assert raised.value.exit_code == EXIT_INTERRUPTED
    assert not isinstance(raised.value, EmulationError)
    assert read_state(folder.path)["cause"] == "interrupted"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), EmulationError),
        (MemoryError("Unable to allocate 8 MiB"), EmulationError),
        (FileNotFoundError(errno.ENOENT, "No such file"), Bug),
        (RuntimeError("a mistake"), Bug),
    ],
)
def test_only_errors_that_the_machine_may_have_are_no_bugs(
    tmp_path: Path, error: Exception, told: type[Exception]
) -> None:
    folder = begun_run(tmp_path, "20260101-000000-a-0000", "", {})
    with pytest.raises(told), recording_early_end(folder):
        raise error
    assert str(error.args[-1]) in read_state(folder.path)["cause"]
    assert (folder.path / REPORT).exists() is (told is Bug)


@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_an_early_end_names_a_folder_only_where_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: str
) -> None:
    """The folders of the virtual machine end with it; the command outside names the copy."""
    monkeypatch.setenv(CLOCK_VARIABLE, clock)
    folder = begun_run(tmp_path, "20260101-000000-a-0000", "", {})
    with (
        pytest.raises(EmulationError, match="the controller died") as told,
        recording_early_end(folder),
    ):
        raise EmulationError("the controller died")
    assert (str(folder.path) in str(told.value)) is (clock == "real")


def test_a_run_whose_folder_was_removed_is_no_bug(tmp_path: Path) -> None:
    folder = begun_run(tmp_path, "20260101-000000-a-0000", "", {})
    shutil.rmtree(folder.path)
    told = f"{folder.path}: removed during the run"
    with pytest.raises(EmulationError, match=told), recording_early_end(folder):
        (folder.path / "waits.csv").write_text("")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_cannot_begin_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = RunFolder(tmp_path / "file" / "20260101-000000-a-0000", 1)
    with pytest.raises(InputError, match="name another --store"):  # noqa: SIM117
        with recording_early_end(folder), folder.locked():
            folder.begin("", {})


def test_list_says_that_a_run_whose_process_is_gone_has_ended(tmp_path: Path) -> None:
    folder = begun_run(tmp_path, "20260101-000000-a-0000", "", {})
    with folder.locked():
        assert listed(tmp_path) == [f"  {folder.path.name}  running"]
    assert listed(tmp_path) == [f"  {folder.path.name}  ended"]


DAMAGE: list[tuple[str, bytes | None]] = [
    ("state.json", None),
    ("state.json", b""),
    ("state.json", b"[]"),
    ("state.json", b"{}"),
    ("state.json", b"[" * 100_000),
    ("result.json", None),
    ("result.json", b'{"schema": "railbed.run/2", "run'),
    ("result.json", b'{"schema": "railbed.run/1"}'),
    ("result.json", b"9" * 5000),
    ("result.json", b"\xff"),
]


def test_a_run_that_is_interrupted_as_it_begins_is_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others see the folder as soon as it is marked, and may end the run at once."""
    begin = RunFolder.begin

    def interrupted(folder: RunFolder, *what: Any) -> None:
        begin(folder, *what)
        raise KeyboardInterrupt

    monkeypatch.setattr(RunFolder, "begin", interrupted)
    scenario = load(LIBRARY / "quickstart.yaml")
    with pytest.raises(KeyboardInterrupt):
        execution.run(scenario, ProxyKind.PROCESS, tmp_path, SILENT)
    (folder,) = stored_runs(tmp_path)
    assert read_state(tmp_path / folder)["state"] == "incomplete"


@pytest.mark.parametrize(("name", "content"), DAMAGE)
def test_a_damaged_run_is_one_line_and_keeps_none_from_the_others(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    damaged = complete(tmp_path, "20260101-000000-a-0000")
    good = complete(tmp_path, "20260101-000000-b-0000")
    (damaged / name).unlink()
    if content is not None:
        (damaged / name).write_bytes(content)
    lines = listed(tmp_path)
    assert len(lines) == 2
    assert any(line.startswith(f"  {damaged.name}  damaged: ") for line in lines)
    assert f"  {good.name}  {RESULT['verdict']}" in lines
    with pytest.raises(InputError):
        read_result(find_run(tmp_path, damaged.name))
    assert read_result(find_run(tmp_path, "latest"))["run_id"] == good.name


@pytest.mark.parametrize("key", ["cases", "failures"])
def test_a_run_without_its_cases_is_not_listed_as_complete(tmp_path: Path, key: str) -> None:
    damaged = complete(tmp_path, "20260101-000000-a-0000")
    result = json.loads((damaged / "result.json").read_text())
    (damaged / "result.json").write_text(json.dumps(result | {key: 1}))
    (line,) = listed(tmp_path)
    assert line.startswith(f"  {damaged.name}  damaged: ")


@pytest.mark.parametrize("key", ["cases", "failures", "slowdowns", "folder"])
def test_a_result_of_another_form_is_refused_before_a_word_is_printed(
    tmp_path: Path, key: str
) -> None:
    text = io.StringIO()
    console = Console(file=text)
    result = {name: value for name, value in RESULT.items() if name != key}

    def show() -> None:
        with printed_whole(console, tmp_path):
            print_sections(run_sections(result), console)
            console.print(result["folder"])

    with pytest.raises(InputError, match="cannot be parsed"):
        show()
    assert text.getvalue() == ""


def test_a_stored_name_that_looks_like_markup_is_printed_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    case = {**RESULT["cases"][0], "case": "[/red]/[bold]:smile:"}
    print_sections(run_sections({**RESULT, "cases": [case]}), out)
    printed = capsys.readouterr().out
    assert "[/red]" in printed
    assert "[bold]:smile:" in printed


def test_the_latest_run_is_the_last_even_if_the_clock_is_set_back(tmp_path: Path) -> None:
    complete(tmp_path, "20261231-235959-a-0000")
    before = complete(tmp_path, "20250101-000000-b-0000")
    assert find_run(tmp_path, "latest") == before
    point = complete(tmp_path / "sweeps" / "night" / "001", "20240101-000000-c-0000")
    assert find_run(tmp_path, "latest") == point
    computed = tmp_path / "20230101-000000-d-0000"
    with copy_into_store(before, computed):
        assert find_run(tmp_path, "latest") == point
    assert find_run(tmp_path, "latest") == computed


@pytest.mark.parametrize("number", ["9" * 4000, "-5", "1.5", '"7"', "1e400"])
def test_after_a_damaged_number_runs_have_numbers(tmp_path: Path, number: str) -> None:
    damaged = complete(tmp_path, "20260101-000000-a-0000")
    (damaged / "state.json").write_text(f'{{"state": "complete", "number": {number}}}')
    folder = begun_run(tmp_path, "20260101-000001-b-0000", "", {})
    assert number_of(folder.path) == folder.number == 1


def test_a_run_has_the_place_and_id_of_its_folder_whatever_its_file_says(tmp_path: Path) -> None:
    run = complete(tmp_path, "20260101-000000-a-0000")
    moved = {**RESULT, "run_id": "../../x", "folder": "/elsewhere/x"}
    (run / "result.json").write_text(json.dumps(moved))
    read = read_result(run)
    assert (read["run_id"], read["folder"]) == (run.name, str(run))


def test_a_run_that_is_the_current_folder_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = complete(tmp_path / "elsewhere", "20260101-000000-a-0000")
    monkeypatch.chdir(run)
    assert find_run(tmp_path, ".") == run


def test_the_latest_sweep_is_the_last_begun_even_if_the_clock_is_set_back(tmp_path: Path) -> None:
    first = begin_sweep(tmp_path, "first", a_sweep())
    second = begin_sweep(tmp_path, "second", a_sweep())
    os.utime(first.path / "sweep.json", (4e9, 4e9))
    assert find_sweep(tmp_path, "latest").name == second.name


def test_records_reach_the_disk_before_they_get_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def sync(descriptor: int) -> None:
        done.append(f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")

    def rename(self: Path, target: Path) -> None:
        done.append(f"rename {self.name}")
        os.rename(self, target)

    monkeypatch.setattr("os.fsync", sync)
    monkeypatch.setattr(Path, "rename", rename)
    user_files.write_text(tmp_path / "a.json", "{}")
    assert done == ["sync a.json.draft", "rename a.json.draft", f"sync {tmp_path.name}"]


def test_all_records_reach_the_disk_before_a_run_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = begun_run(tmp_path, "a", "", {})
    (folder.path / "transfers.csv").write_text("1\n")
    synced: list[str] = []

    def sync(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)

    monkeypatch.setattr("os.fsync", sync)
    folder.complete(RESULT)
    assert synced.index("transfers.csv") < synced.index("state.json.draft")


@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to])
def test_a_draft_is_not_written_through_a_link(
    tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    other = tmp_path / "other"
    other.write_text("of somebody else")
    plant(tmp_path / "a.json.draft", other)
    user_files.write_text(tmp_path / "a.json", "{}")
    assert (other.read_text(), (tmp_path / "a.json").read_text()) == ("of somebody else", "{}")


def test_a_full_disk_keeps_the_file_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_files.write_text(tmp_path / "a.json", "{}")
    monkeypatch.setattr("os.fsync", Mock(side_effect=OSError(errno.ENOSPC, "No space left")))
    with pytest.raises(OSError, match="No space left"):
        user_files.write_text(tmp_path / "a.json", "[]")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("a.json", "{}")]


def test_a_folder_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    user_files.write_text(tmp_path / "link" / "a.json", "{}")
    assert (tmp_path / "real" / "a.json").read_text() == "{}"


def test_a_link_in_a_files_place_is_replaced(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("of somebody else")
    (tmp_path / "a.json").symlink_to(other)
    user_files.write_text(tmp_path / "a.json", "{}")
    assert (other.read_text(), (tmp_path / "a.json").read_text()) == ("of somebody else", "{}")


def test_what_sudo_writes_belongs_to_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: set[str] = set()

    def chown(path: str | Path, user: int, group: int, **options: object) -> None:
        assert (user, group, options["follow_symlinks"]) == (1000, 100, False)
        given.add(Path(path).name)

    monkeypatch.setattr("os.chown", chown)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", "1000")
    monkeypatch.setenv("SUDO_GID", "100")
    folder = begun_run(tmp_path / "runs", "a", "", {})
    (folder.path / "case").mkdir()
    (folder.path / "case" / "transfers.csv").write_text("1\n")
    folder.complete(RESULT)
    assert {"runs", "a", "case", "transfers.csv", "result.json"} <= given
    begin_sweep(tmp_path / "runs", "night", a_sweep())
    assert {"sweeps", "night", "001", "scenario.yaml", "sweep.json"} <= given
    with find_sweep(tmp_path / "runs", "night").locked():
        assert "lock" in given


def test_a_sweep_that_cannot_be_locked_is_a_sentence(tmp_path: Path) -> None:
    folder = begin_sweep(tmp_path, "night", a_sweep())
    (folder.path / "lock").mkdir()
    with pytest.raises(InputError, match="lock: cannot be locked: Is a directory"):
        folder.locked().__enter__()


def test_without_sudo_nothing_is_given_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    assert user_files.user() is None
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_GID", "100")
    for user in ("x", "-5", str(2**32 - 1), "9" * 30):
        monkeypatch.setenv("SUDO_UID", user)
        assert user_files.user() is None


def test_a_sweep_refuses_to_go_on_with_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = begin_sweep(tmp_path, "night", a_sweep())
    fake = Fake()
    monkeypatch.setattr(sweeps, "program_version", lambda: "9.9")
    with pytest.raises(InputError, match=r"must be resumed with Railbed [0-9a-f]{12}, got 9.9"):
        find_sweep(tmp_path, "night").require_version()
    run(find_sweep(tmp_path, "night"), fake)
    assert fake.executed == []
    monkeypatch.setattr(sweeps, "program_version", lambda: folder.version)
    run(find_sweep(tmp_path, "night"), fake)
    assert fake.executed == [1, 2, 3]


def damaged_state(point: Path) -> Path:
    return point / "point.json"


def damaged_result(point: Path) -> Path:
    return next(point.glob("run-*/result.json"))


@pytest.mark.parametrize("place", [damaged_state, damaged_result])
def test_a_damaged_point_is_named_and_run_again(
    tmp_path: Path, place: Callable[[Path], Path]
) -> None:
    folder = begin_sweep(tmp_path, "night", a_sweep())
    run(folder, Fake())
    place(folder.path / "002").write_text('{"exit')
    assert list(folder.damage) == [2]
    (lost,) = [point for point in sweep_object(folder)["points"] if point["verdict"] == "fail"]
    assert (lost["point"], "cannot be parsed" in lost["cause"]) == (2, True)
    again = Fake()
    run(find_sweep(tmp_path, "latest"), again)
    assert again.executed == [2]


def test_a_damaged_sweep_keeps_none_from_the_others(tmp_path: Path) -> None:
    begin_sweep(tmp_path, "good", a_sweep())
    bad = begin_sweep(tmp_path, "bad", a_sweep())
    (bad.path / "sweep.json").write_text('{"points": 7}')
    with pytest.raises(InputError, match="cannot be parsed"):
        find_sweep(tmp_path, "bad")
    assert find_sweep(tmp_path, "latest").name == "good"


def test_a_crash_report_goes_into_the_runs_folder_or_a_private_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    bug = report_bug(ValueError("odd"), tmp_path)
    assert str(bug) == f"a bug in Railbed: ValueError: odd; please report {tmp_path / REPORT}"
    place = Path(re.search(r"report (.*)", str(report_bug(ValueError("odd"))))[1])  # type: ignore[index]
    assert place.parent.stat().st_mode & 0o777 == 0o700
    assert "ValueError: odd" in place.read_text()


def test_a_crash_report_that_cannot_be_written_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("results.store.records.write_record", full)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    bug = report_bug(ValueError("odd"), tmp_path)
    assert (bug.exit_code, str(bug)) == (
        4,
        "a bug in Railbed: ValueError: odd; no report could be written",
    )
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for store in (tmp_path / "file", tmp_path / ("a" * 300)):
        with pytest.raises(InputError):
            begun_run(store, "a", "", {})
        with pytest.raises(InputError):
            begin_sweep(store, "night", a_sweep())


def test_a_run_records_the_version_of_its_program() -> None:
    assert re.fullmatch(
        r"[0-9a-f]{12}", environment(ProxyKind.PROCESS, Datapath.USER_SPACE)["railbed"]
    )


def test_a_folder_that_may_not_be_read_hides_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file system of one's own has one, `lost+found`; a run of another user may be one, too."""
    kept, closed = (f"20260101-00000{number}-a-0000" for number in range(2))
    for run_id in (kept, closed):
        begun_run(tmp_path, run_id, "", {}).complete({**RESULT, "run_id": run_id})
    (tmp_path / "lost+found").mkdir()

    def denied(call: Callable[..., Any]) -> Callable[..., Any]:
        def act(place: Any, *rest: Any, **options: Any) -> Any:
            if str(place).startswith((f"{tmp_path}/lost+found/", f"{tmp_path}/{closed}/")):
                raise PermissionError(errno.EACCES, "Permission denied", str(place))
            return call(place, *rest, **options)

        return act

    monkeypatch.setattr("os.stat", denied(os.stat))
    monkeypatch.setattr("os.open", denied(os.open))
    list_all(tmp_path)
    said = capsys.readouterr().out
    assert f"  {kept}  fail\n" in said
    assert (
        f"  {closed}  damaged: {tmp_path}/{closed}/state.json: cannot be read: Permission" in said
    )


@contextmanager
def closed(folder: Path) -> Iterator[None]:
    """Work within the context in a folder that may not be entered, as nobody if this is root."""
    user, above = os.geteuid(), Path.cwd()
    os.chdir(folder)
    folder.chmod(0)
    try:
        os.seteuid(65534 if user == 0 else user)
        yield
    finally:
        os.seteuid(user)
        folder.chmod(0o700)
        os.chdir(above)


def test_in_a_closed_folder_the_default_store_cannot_be_read(tmp_path: Path) -> None:
    with closed(tmp_path), pytest.raises(InputError, match=r"^runs: cannot be read: Perm"):
        stored_runs(DEFAULT_STORE)
    with closed(tmp_path), pytest.raises(InputError, match=r"^runs/sweeps: cannot be read: Perm"):
        find_sweep(DEFAULT_STORE, "latest")
    with closed(tmp_path), pytest.raises(InputError, match=r"^\.: cannot be read: Permission"):
        stored_runs(Path())


def test_a_record_of_another_user_is_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{}")
    with closed(tmp_path), pytest.raises(InputError, match=r"Permission denied \(its owner may"):
        read_state(Path())


def test_a_key_at_its_default_is_no_difference(tmp_path: Path) -> None:
    text = (LIBRARY / "quickstart.yaml").read_text()
    texts = text, text.replace("warmup: 1", ""), text.replace("repeats: 5", "repeats: 6")
    for number, scenario in enumerate(texts):
        run_id = f"20260101-00000{number}-a-0000"
        folder = begun_run(tmp_path, run_id, scenario, {})
        folder.complete({**RESULT, "run_id": run_id})
    names = [run.name for run in stored_runs(tmp_path)]
    assert compared(tmp_path, names[0], names[1])["warnings"] == []
    different = compared(tmp_path, names[0], names[2])["warnings"]
    assert different == ["the scenarios differ in repeats: 5 against 6"]
