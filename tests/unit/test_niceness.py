"""Niceness of a started process: its own and its session's, as the kernel shares cores by both."""

import os
from pathlib import Path

from linux.processes.lifetime import end, start, wait_for


def test_a_process_and_its_session_have_the_niceness(tmp_path: Path) -> None:
    """Linux shares cores among sessions first, among their processes next (sched(7), autogroup)."""
    process = start(["sleep", "60"], tmp_path / "log", {}, 5)
    place = Path(f"/proc/{process.pid}")
    try:
        wait_for(lambda: (place / "comm").read_text() == "sleep\n", "sleep", 10)
        ours = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(ours + 5, 19)
        session = place / "autogroup"  # a kernel may have none
        assert not session.exists() or session.read_text().endswith(" nice 5\n")
    finally:
        end(process)
    assert (tmp_path / "log").read_text() == ""
