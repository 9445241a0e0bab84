"""Files that commands write: only regular files are replaced, and what cannot be is a sentence."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from commands.export import export
from commands.paper import paper
from commands.report import report
from commands.timeline import timeline
from commands.traffic import traffic
from model.errors import InputError
from tests.unit.stored_runs import stored_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """What makes a FIFO that a writer does not wait at."""
    opened = []

    def make(name: str) -> Path:
        place = tmp_path / name
        os.mkfifo(place)
        opened.append(os.open(place, os.O_RDWR | os.O_NONBLOCK))
        return place

    yield make
    for descriptor in opened:
        os.close(descriptor)


WRITERS: dict[str, Callable[[Path, Path], object]] = {
    "page.html": lambda run, to: report([run.name], to, "", None, run.parent),
    "run.trace.json": lambda run, to: timeline(run.name, to, run.parent),
    "cases.csv": lambda run, to: export(run.name, "csv", to.parent, run.parent),
    "rail-only_all-to-all_direct.txt": lambda run, to: export(
        run.name, "nccl-tests", to.parent, run.parent
    ),
    "map.png": lambda run, to: traffic(Path("moe-1.3b"), figure=to),
    "fig2b.svg": lambda run, to: paper("fig2b", to=to.parent),
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_no_regular_file_is_refused_and_stays(
    run: Path, pipe: Callable[[str], Path], name: str
) -> None:
    place = pipe(name)
    with pytest.raises(InputError, match=f"cannot be written: .*{name} is not a regular file"):
        WRITERS[name](run, place)
    assert stat.S_ISFIFO(place.stat().st_mode)


def test_a_figure_of_a_page_replaces_no_pipe(
    run: Path, tmp_path: Path, pipe: Callable[[str], Path]
) -> None:
    (tmp_path / "r-figures" / run.name).mkdir(parents=True)
    pipe(f"r-figures/{run.name}/completion.svg")
    with pytest.raises(InputError, match=r"completion\.svg is not a regular file"):
        report([run.name], tmp_path / "r.html", "svg", None, run.parent)


def test_devices_and_what_the_kernel_shows_stay(run: Path, tmp_path: Path) -> None:
    """/dev/stdout is a link to a regular file, if the shell's output goes to one."""
    (tmp_path / "kernel").symlink_to("/dev")
    for place in ("/dev/stdout", "/proc/self/fd/1", str(tmp_path / "kernel" / "stdout")):
        link = os.readlink(place)
        with pytest.raises(InputError, match=r"cannot be written: .*/.* holds no regular files"):
            timeline(run.name, Path(place), run.parent)
        assert os.readlink(place) == link


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_in_the_place_of_a_folder_is_a_sentence(
    run: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(InputError, match=r"cannot be written: .*(Not a directory|File exists)"):
        WRITERS[name](run, tmp_path / "file" / name)
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize("above", ["", "figures"])
@pytest.mark.parametrize("name", WRITERS)
def test_records_of_runs_and_sweeps_are_not_replaced(
    run: Path, tmp_path: Path, name: str, above: str
) -> None:
    (tmp_path / "link").symlink_to(run)
    sweep = tmp_path / "sweeps" / "name"
    sweep.mkdir(parents=True)
    (sweep / "sweep.json").write_text("{}")
    before = sorted(run.rglob("*"))
    for folder in (run, tmp_path / "link", sweep):
        with pytest.raises(InputError, match="is in the folder of a run or a sweep"):
            WRITERS[name](run, folder / above / name)
    assert (sorted(run.rglob("*")), os.listdir(sweep)) == (before, ["sweep.json"])


def test_the_object_of_a_sweep_is_not_its_folder(run: Path, tmp_path: Path) -> None:
    """`railbed sweep --json > sweep.json` leaves one in a folder of the user's."""
    (tmp_path / "sweep.json").write_text("{}")
    timeline(run.name, tmp_path / "trace.json", run.parent)
    assert (tmp_path / "trace.json").is_file()


def test_a_page_needs_a_name(run: Path) -> None:
    with pytest.raises(InputError, match="is not a regular file"):
        report([run.name], Path(), "", None, run.parent)


def test_a_figure_needs_a_name_and_has_one_ending(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=r"--figure: must name a file, got '\.'"):
        traffic(Path("moe-1.3b"), figure=Path())
    assert capsys.readouterr().out == ""
    traffic(Path("moe-1.3b"), figure=tmp_path / "a.svg")
    assert {file.name for file in tmp_path.iterdir()} == {"a.svg", "a.png"}
