"""The wall clock may be set at any moment: timestamps stay right, and nothing else follows it."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linux.files.program_files import ROOT, program_files
from linux.machine import clocks
from linux.machine.clocks import Timestamps

# Its one purpose; the names of run folders and the dates of figures, which are for people.
MAY_READ_THE_WALL_CLOCK = {
    *("linux/machine/clocks.py", "results/store/runs.py"),
    "studies/benchmarks/render.py",
}
WALL_CLOCK = {"time", "time_ns", "strftime", "ctime", "localtime", "gmtime"}
OF_DATES = {"now", "today", "utcnow"}
HOUR_NS = 3600 * 10**9
# Moments of packets since the beginning, and of the three looks at the clocks.
LOOKS_NS = (0, 10_000_000, 20_000_000)
MOMENTS_NS = st.lists(st.integers(LOOKS_NS[1], LOOKS_NS[2]), max_size=20)


class FakeClocks:
    """A machine's clocks; the wall clock is set forward or back at one moment."""

    def __init__(self, set_at_ns: int, by_ns: int) -> None:
        self.now_ns, self._set_at_ns, self._by_ns = 0, set_at_ns, by_ns

    def monotonic_ns(self) -> int:
        return self.now_ns

    def time_ns(self) -> int:
        return self.stamp_ns(self.now_ns)

    def stamp_ns(self, moment_ns: int) -> int:
        """What the wall clock shows at a moment."""
        return moment_ns + HOUR_NS + (self._by_ns if moment_ns >= self._set_at_ns else 0)


@given(
    set_at_ns=st.integers(LOOKS_NS[1], LOOKS_NS[2]),
    by_ns=st.integers(-24 * HOUR_NS, 24 * HOUR_NS).filter(lambda by: abs(by) > LOOKS_NS[2]),
    moments_ns=MOMENTS_NS,
)
def test_timestamps_are_right_though_the_clock_is_set(
    set_at_ns: int, by_ns: int, moments_ns: list[int]
) -> None:
    fake = FakeClocks(set_at_ns, by_ns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clocks, "time", fake)
        timestamps = Timestamps()
        for fake.now_ns in LOOKS_NS[1:]:
            timestamps.renew()
        seen_ns = [timestamps.moment_ns(fake.stamp_ns(moment)) for moment in moments_ns]
    assert seen_ns == moments_ns


def test_nothing_is_timed_by_the_wall_clock() -> None:
    modules = [path for path in program_files() if path.suffix == ".py"]
    readers = {str(path.relative_to(ROOT)) for path in modules if reads_the_wall_clock(path)}
    assert readers == MAY_READ_THE_WALL_CLOCK
    scripts = [path for path in program_files() if path.suffix == ".sh"]
    assert [script for script in scripts if "SECONDS" in script.read_text()] == []


def reads_the_wall_clock(path: Path) -> bool:
    """Whether a module reads CLOCK_REALTIME, by its functions' names or its own."""
    return any(
        isinstance(node, ast.Attribute)
        and (
            node.attr == "CLOCK_REALTIME"
            or (is_name(node.value, "time") and node.attr in WALL_CLOCK)
            or (is_name(node.value, "date", "datetime") and node.attr in OF_DATES)
        )
        for node in ast.walk(ast.parse(path.read_text()))
    )


def is_name(node: ast.expr, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names
