"""A lock file that processes hold one after the other."""

from pathlib import Path
from threading import Thread

import pytest

from model.errors import EmulationError
from testbed.virtual_machine import cache
from testbed.virtual_machine.cache import locked_folder


def test_a_lock_that_another_holds_is_waited_for_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, order = tmp_path / "lock", list[str]()

    def second() -> None:
        with locked_folder(tmp_path):
            order.append("second")

    with locked_folder(tmp_path):
        other = Thread(target=second)
        other.start()
        while str(place) not in capsys.readouterr().err:
            other.join(0.01)
        order.append("first")
    other.join(60)
    assert order == ["first", "second"]


def test_a_lock_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "LOCK_DEADLINE_S", 0.0)
    with (
        locked_folder(tmp_path),
        pytest.raises(EmulationError, match=r"release of the lock .* by another"),
    ):
        locked_folder(tmp_path).__enter__()
    with locked_folder(tmp_path):
        pass


def test_a_link_in_the_place_of_a_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("kept")
    (tmp_path / "lock").symlink_to("other")
    with pytest.raises(OSError, match="symbolic links"):
        locked_folder(tmp_path).__enter__()
    assert (tmp_path / "other").read_text() == "kept"
