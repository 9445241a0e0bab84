"""Files that root writes into a user's folder: none is written through a link that is there."""

import errno
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from execution.cases.observer import Observer
from linux.processes.lifetime import running
from model.fabric.spec import FabricKind
from model.workload.transfers.collective import Collective
from results.store.runs import RunFolder
from results.store.sweeps import SweepFolder, _write
from testbed.instruments.capture_program import PcapFile
from testbed.instruments.samplers import LinkSampler
from tests.unit.test_results import modeled
from tests.unit.test_sweeping import a_sweep

CASE = "rail-only/all-to-all/direct"
FOLDER = CASE.replace("/", "_")
Writer = Callable[[Path], None]


def transfers(folder: Path) -> None:
    topology, _, prediction = modeled(FabricKind.RAIL_ONLY, Collective.ALL_TO_ALL, "direct")
    RunFolder(folder, 1).begin_case(CASE, topology, prediction)


def observations(folder: Path) -> None:
    links = SimpleNamespace(process_ids={})
    fabric = SimpleNamespace(
        bed=SimpleNamespace(links=links), topology=SimpleNamespace(least_depth_s=0.01)
    )
    instruments: Any = SimpleNamespace(windows=())
    Observer(cast(Any, fabric), instruments, instruments).keep(folder)


def link_samples(folder: Path) -> None:
    with LinkSampler([], folder):
        pass


def captured_frames(folder: Path) -> None:
    PcapFile(folder / "a.pcap", 1000).close()


def points(folder: Path) -> None:
    _write(SweepFolder(folder, a_sweep(), "1"), 1)


WRITERS: dict[str, Writer] = {
    f"{FOLDER}/transfers.csv": transfers,
    "waits.csv": observations,
    "pauses.csv": observations,
    "vitals.csv": observations,
    "links.csv": link_samples,
    "a.pcap": captured_frames,
    "001/scenario.yaml": points,
}


@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to])
@pytest.mark.parametrize("name", WRITERS)
def test_a_link_in_the_place_of_a_record_is_replaced(
    tmp_path: Path, name: str, plant: Callable[[Path, Path], None]
) -> None:
    other, place = tmp_path / "other", tmp_path / "run" / name
    other.write_text("of somebody else")
    place.parent.mkdir(parents=True)
    plant(place, other)
    WRITERS[name](tmp_path / "run")
    assert other.read_text() == "of somebody else"
    assert place.is_file()
    assert not place.is_symlink()


def appended(folder: Path) -> None:
    RunFolder(folder, 1).add_repeat(CASE, cast(Any, SimpleNamespace(records=(), queue_pairs=())))


def logged(folder: Path) -> None:
    with running(["true"], folder / FOLDER / "transfers.csv", {}):
        pass


@pytest.mark.parametrize("append", [appended, logged])
def test_nothing_is_appended_through_a_link(tmp_path: Path, append: Writer) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "transfers.csv").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links") as refused:
        append(tmp_path)
    assert refused.value.errno == errno.ELOOP
    assert not (tmp_path / "other").exists()
