"""What a cleanup says that it has removed."""

import pytest

from testbed.host.cleanup import Removed


@pytest.mark.parametrize(
    ("removed", "said"),
    [
        (Removed(1, 0, 0, 0), "1 dead run"),
        (Removed(0, 1, 2, 0), "1 process, 2 containers"),
        (Removed(2, 3, 1, 1), "2 dead runs, 3 processes, 1 container, 1 work folder"),
        (Removed(0, 0, 0, 0), ""),
    ],
)
def test_only_what_was_there_is_said(removed: Removed, said: str) -> None:
    assert (str(removed), bool(removed)) == (said, bool(said))
