"""A machine's measured costs are kept in a file, and used on the same machine only."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from model.prediction.machine import Machine
from scenarios.planning.machine_profile import VARIABLE, keep, known_machine, this_machine
from tests.unit.machines import TWO_CORES


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the file, which does not exist yet."""
    found = tmp_path / "lib" / "machine.json"
    monkeypatch.setenv(VARIABLE, str(found))
    return found


def here() -> Machine:
    return replace(TWO_CORES, key=this_machine())


def test_what_is_kept_is_known(place: Path) -> None:
    assert known_machine() is None
    assert keep(here()) == place
    assert known_machine() == here()
    assert place.stat().st_mode & 0o777 == 0o644
    assert list(place.parent.iterdir()) == [place]


def test_every_user_may_read_it_whatever_the_umask(place: Path) -> None:
    before = os.umask(0o077)
    try:
        keep(here())
    finally:
        os.umask(before)
    assert place.parent.stat().st_mode & 0o777 == 0o755
    place.parent.chmod(0o750)
    keep(here())
    assert place.parent.stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize(
    "change", [{"kernel": "1.0"}, {"cores": 99}, {"cpu": "other"}, {"open_vswitch": "other"}]
)
def test_another_machine_was_never_measured(place: Path, change: dict[str, object]) -> None:
    keep(replace(here(), key=replace(this_machine(), **change)))  # type: ignore[arg-type]
    assert known_machine() is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": "railbed.machine/1"}'])
def test_a_file_that_is_no_measurement_is_none(place: Path, text: str) -> None:
    place.parent.mkdir()
    place.write_text(text)
    assert known_machine() is None


def test_a_measurement_of_another_version_is_none(place: Path) -> None:
    keep(here())
    place.write_text(place.read_text().replace("railbed.machine/2", "railbed.machine/1"))
    assert known_machine() is None


def test_a_write_that_fails_leaves_the_old_file(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(here())

    def full_disk(*_: object, **__: object) -> str:
        raise OSError("no space left on device")

    monkeypatch.setattr(json, "dumps", full_disk)
    with pytest.raises(OSError, match="no space"):
        keep(replace(here(), transfer_s=1.0))
    assert known_machine() == here()
