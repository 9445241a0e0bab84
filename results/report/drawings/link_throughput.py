"""Throughput of links while a fault lasts, by their counters: failed, changed, unchanged links."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from model.arrays import Floats
from model.fabric.topology import Link
from results.report.data.analysis import failed_links, link_use, sample_times_s, throughput_bps
from results.report.data.run_data import CaseData
from results.report.drawings.fault_strip import mark, moments
from results.report.drawings.pictures import SERIES, WIDE, Picture, drawing
from results.tables.measured.run import human_bytes

# Number of links drawn: of the failed ones, of the most changed, and of the least changed.
MOST_FAILED, MOST_CHANGED, LEAST_CHANGED = 3, 4, 2
SLICES = 240
ROW = 0.68


@dataclass(frozen=True)
class LinkShown:
    """A link that is drawn, with its bytes in an execution during the fault and in one before it.

    The bytes are those of the link's busier direction.
    """

    link: Link
    is_failed: bool
    size_bytes: float
    before_bytes: float

    @property
    def label(self) -> str:
        """Its name, whether it failed, and its bytes."""
        carried = f"{human_bytes(self.size_bytes)}, {human_bytes(self.before_bytes)} without fault"
        return f"{self.link.name}{' (failed)' if self.is_failed else ''}: {carried}"


def link_throughput(
    failure: Mapping[str, Any], baseline: CaseData, during: CaseData, name: str
) -> Picture:
    """Draw the throughput of links during the fault; `during` must have link samples."""
    shown, happened = links_shown(failure, baseline, during), moments(failure)
    edges_s = np.linspace(0, float(sample_times_s(during).max()), SLICES + 1)
    with drawing(1.2 + ROW * len(shown), WIDE + 0.4) as figure:
        grid = figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, one in zip(grid, shown, strict=True):
            _draw(axes, during, one.link, edges_s)
            mark(axes, happened, 1.0)
            axes.set_title(one.label, loc="left")
        grid[0].set_ylim(0, 110)
        grid[0].set_yticks([0, 100])
        grid[0].set_xlim(0, edges_s[-1])
        grid[-1].set_xlabel("emulated s since the execution's start")
        figure.supylabel("throughput, % of the link's rate", fontsize=9)
        figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return Picture(name, sentence(shown), figure)


def sentence(shown: Sequence[LinkShown]) -> str:
    """Name the links that are drawn, with their bytes."""
    told = "; ".join(one.label for one in shown)
    return f"Bytes of links in an execution during the fault: {told}."


def links_shown(
    failure: Mapping[str, Any], baseline: CaseData, during: CaseData
) -> list[LinkShown]:
    """Choose failed links, and of the others those whose bytes changed most and least."""
    failed = failed_links(during.topology, failure)
    before, after = (bytes_per_execution(case) for case in (baseline, during))
    changes = {
        link: (after[link] - before[link]) / during.topology.link_by_name[link].rate_bps
        for link in before.keys() & after.keys()
    }
    used = [link for link in before if link in changes and before[link] + after[link] > 0]
    order = sorted(set(used) - failed, key=lambda link: (-abs(changes[link]), link))
    chosen = [*sorted(failed & changes.keys())[:MOST_FAILED], *order[:MOST_CHANGED]]
    chosen += order[MOST_CHANGED:][-LEAST_CHANGED:]
    return [
        LinkShown(during.topology.link_by_name[k], k in failed, after[k], before[k]) for k in chosen
    ]


def bytes_per_execution(case: CaseData) -> dict[str, float]:
    """The bytes of each link's busier direction in an execution, by its counters."""
    executions = len(case.executions["number"])
    return {name: found.size_bytes / executions for name, found in link_use([case]).items()}


def _draw(axes: Axes, case: CaseData, link: Link, edges_s: Floats) -> None:
    """Draw both directions of a link."""
    for direction, words, colour, dash in (
        ("up", "up, away from the GPUs", SERIES[0], "-"),
        ("down", "down, towards the GPUs", SERIES[4], "--"),
    ):
        share = 100 * throughput_bps(case, link, direction, edges_s) / link.rate_bps
        axes.stairs(share, edges_s, color=colour, linestyle=dash, linewidth=1.1, label=words)
