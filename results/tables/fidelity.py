"""The table of machine headroom, a row for each case, from the JSON object of a run."""

from collections.abc import Iterator
from typing import Any

from rich.table import Table
from rich.text import Text

from results.tables.case_grid import Case, case_grid
from results.tables.style import styled_verdict

HEADINGS = ("idle", "switch", "saturated", "starved", "agents", "retx", "")
LEGEND = (
    "Idle: of all cores. Switch: the busiest one's share of a core; saturated: share of the time "
    "in which it never ran out of work; starved: in which it was behind and waited for a core. "
    "Agents: waited for a core. Retx: segments that TCP retransmitted. All of the worst "
    "execution."
)


def fidelity_table(cases: list[Case]) -> Table:
    """Return the figures behind the fidelity verdict; cases from older versions lack them."""
    observed = [case for case in cases if "windows" in case.get("fidelity", ())]
    return case_grid(HEADINGS, observed, _cells)


def _cells(case: Case) -> Iterator[str | Text]:
    seen = case["fidelity"]
    yield f"{seen['idle_mean']:.0%}"
    yield f"{seen['switch_share_mean']:.0%}"
    yield _share(seen, "switch_never_done")
    yield _share(seen, "switch_starved")
    yield f"{seen['agents_run_delay_mean']:.1%}"
    yield f"{seen['retransmits']}"
    yield styled_verdict(seen["verdict"])


def _share(seen: dict[str, Any], key: str) -> str:
    """Format a share; `-` if a run of an older version lacks it."""
    return f"{seen[key]:.0%}" if key in seen else "-"
