"""Tables of a run's executions and of machine headroom: a row for each case."""

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from results.tables.style import Case, case_grid, number_or_dash, styled_verdict
from results.verdicts.summary import Interval

EXECUTIONS = ("counted", "disturbed", "median ±", "lost", "longest")
EXECUTIONS_LEGEND = (
    "Disturbed: by pauses of the machine; others were executed in their place. Median ±: with 95 % "
    "confidence, from six executions on. Lost: of all cores, to pauses of 1 ms and more; "
    "longest: of these pauses; both in the worst execution."
)
HEADROOM = ("idle", "switch", "never idle", "starved", "agents", "retx", "")
HEADROOM_LEGEND = (
    "Idle: of all cores. Switch: the busiest one's share of a core; never idle: share of the CPU "
    "samples in which it never ran out of work; starved: share of the time in which it was behind "
    "and waited for a core. Agents: waited for a core. Retx: segments that TCP retransmitted, in "
    "all executions that count; all else is of the worst one."
)


def executions_table(cases: list[Case]) -> Table:
    """Return how many executions count, and what pauses took."""
    return case_grid(EXECUTIONS, cases, _execution_cells)


def _execution_cells(case: Case) -> Iterator[str | Text]:
    seen = case["fidelity"]
    counted, disturbed = len(case["measured_s"]["values"]), len(case["disturbed_s"])
    yield f"{counted}"
    yield f"{disturbed}, all count" if case["disturbed_counted"] else f"{disturbed}"
    interval = case["measured_s"]["interval"]
    yield "-" if interval is None else f"{Interval(**interval).half_width:.2%}"
    yield number_or_dash(seen.get("lost"), ".1%")
    yield f"{1e3 * seen['pause_longest_s']:.1f} ms" if "lost" in seen else "-"


def headroom_table(cases: list[Case]) -> Table:
    """Return the figures behind the fidelity verdict."""
    observed = [case for case in cases if "windows" in case["fidelity"]]
    return case_grid(HEADROOM, observed, _headroom_cells)


def _headroom_cells(case: Case) -> Iterator[str | Text]:
    seen = case["fidelity"]
    yield f"{seen['idle_mean']:.0%}"
    yield f"{seen['switch_share_mean']:.0%}"
    yield f"{seen['switch_never_done']:.0%}"
    yield f"{seen['switch_starved']:.0%}"
    yield f"{seen['agents_run_delay_mean']:.1%}"
    yield f"{seen['retransmits']}"
    yield styled_verdict(seen["verdict"])
