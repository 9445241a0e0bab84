"""A fault moment by moment: traffic of each GPU, lost probes, throughput of links."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm

from model.arrays import Floats
from model.fabric.topology import Link
from results.figures.kit import SERIES, WIDE, Picture, drawing
from results.report import analysis
from results.report.run_data import CaseData
from results.sections.section import human_bytes, range_of

BINS = 240
# Number of links drawn: of those struck, of the most changed, and of the least changed.
MOST_STRUCK, MOST_CHANGED, LEAST_CHANGED = 3, 4, 2
ROW = 0.68
# Events of a fault: the dash and colour of their lines, and what happens.
EVENTS = {
    "begins": ("-", "#b00020", "the fault begins"),
    "detected": ("--", SERIES[1], "the controller detects it"),
    "confirmed": (":", SERIES[2], "all new rules are confirmed"),
    "ends": ("-", SERIES[3], "the fault ends"),
    "returned": (":", SERIES[3], "all use what returned"),
}
RESPONSES = {
    "detected_ms": "detected after {}",
    "confirmed_ms": "new paths confirmed after {}",
    "returned_ms": "old ones {} after its end",
}


def fault_strip(
    failure: Mapping[str, Any], case: CaseData, lost_s: Mapping[str, Sequence[float]], name: str
) -> Picture:
    """Draw the executions during the fault; `lost_s` has the seconds at which probes were lost."""
    end_s = max((case.ends_ns.max() - case.begun_ns) / analysis.NS_PER_S, 1e-9)
    rates = sent_rates(case)
    ranks = len(rates)
    heights = [max(1.4, 0.16 * min(ranks, 32)), max(0.7, 0.16 * len(lost_s))]
    with drawing(2.0 + sum(heights), WIDE + 0.4) as figure:
        top, below = figure.subplots(2, 1, height_ratios=heights)
        image = top.imshow(
            rates / 1e6,
            aspect="auto",
            extent=(0, end_s, ranks - 0.5, -0.5),
            cmap="Greys",
            interpolation="nearest",
            # NIC links have a twentieth of the rate of HB links.
            norm=PowerNorm(0.4, 0),
        )
        ticks, gpus = range(0, ranks, max(1, ranks // 16)), case.topology.job_gpus
        top.set_yticks(ticks, [gpus[rank].name for rank in ticks], fontsize=7)
        top.grid(visible=False)
        top.set_xlabel("emulated s since the execution's start")
        # After an abort, a rank may be on another GPU.
        top.set_ylabel("rank, by its first GPU")
        figure.colorbar(image, ax=top, label="sends (Mbit/s)", pad=0.01)
        _lost_probes(below, lost_s, moments(failure))
        mark(top, moments(failure), 1.0)
        mark(below, moments(failure), 1e3)
        figure.legend(*top.get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return Picture(name, sentence(failure), figure)


def _lost_probes(
    axes: Axes, lost_s: Mapping[str, Sequence[float]], happened: Sequence[tuple[str, float]]
) -> None:
    """Draw the lost probes of each pair, in the time around the faults alone."""
    for row, seconds in enumerate(lost_s.values()):
        axes.plot([1e3 * s for s in seconds], [row] * len(seconds), "|", color="#b00020")
    names = list(lost_s) or ["no pair probed"]
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set_ylim(len(names) - 0.5, -0.5)
    if happened:
        first, last = happened[0][1], max(moment_s for _, moment_s in happened)
        around = max(0.02, 0.3 * (last - first))
        axes.set_xlim(1e3 * (first - around), 1e3 * (last + around))
    axes.set_xlabel("emulated ms since the execution's start; a stroke is a lost probe")


def mark(axes: Axes, happened: Sequence[tuple[str, float]], scale: float) -> None:
    """Mark the events of a fault; each kind is named once."""
    labels = {event: words for event, (_, _, words) in EVENTS.items()}
    for event, moment_s in happened:
        dash, colour, _ = EVENTS[event]
        label = labels.pop(event, None)
        axes.axvline(moment_s * scale, linestyle=dash, color=colour, linewidth=1.4, label=label)


def moments(failure: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return the events of a fault, in seconds since the execution's start."""
    happened = []
    for times in failure["times"]:
        for event, since, responses in (
            ("begins", "begun_s", ("detected", "confirmed")),
            ("ends", "ended_s", ("returned",)),
        ):
            if (since_s := times[since]) is not None:
                happened.append((event, since_s))
                known = (one for one in responses if times[f"{one}_ms"] is not None)
                happened += [(one, since_s + times[f"{one}_ms"] / 1e3) for one in known]
    return happened


def sentence(failure: Mapping[str, Any]) -> str:
    """Describe a failure in a sentence; of several faults, the least and the largest times."""
    told = [
        words.format(f"{range_of(known, '{:.0f}'.format)} ms")
        for name, words in RESPONSES.items()
        if (known := [times[name] for times in failure["times"] if times[name] is not None])
    ]
    fault = f"{failure['fault']} at {failure['where']} on {failure['fabric']}"
    happened = ": ".join(filter(None, (fault, ", ".join(told))))
    blackout_ms = failure["blackout_ms"]
    return happened + ("." if blackout_ms is None else f"; longest blackout {blackout_ms:.0f} ms.")


def sent_rates(case: CaseData) -> Floats:
    """Return the sending rate of each rank (row) in slices of all executions' time, in bit/s."""
    every, window_ns = analysis.spans(case), (case.begun_ns, int(case.ends_ns.max()))
    shape = len(case.topology.job_gpus), BINS
    return analysis.spread_rates(every, every["source"], shape, window_ns)


def link_throughput(
    failure: Mapping[str, Any], baseline: CaseData, during: CaseData, name: str
) -> Picture:
    """Draw the throughput of links during the fault; `during` must have link samples."""
    shown, happened = links_shown(failure, baseline, during), moments(failure)
    edges_s = np.linspace(0, float(analysis.sample_times_s(during).max()), BINS + 1)
    with drawing(1.2 + ROW * len(shown), WIDE + 0.4) as figure:
        grid = figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, (name_of_link, label) in zip(grid, shown.items(), strict=True):
            _draw(axes, during, during.topology.link_by_name[name_of_link], edges_s)
            mark(axes, happened, 1.0)
            axes.set_title(label, loc="left")
        grid[0].set_ylim(0, 110)
        grid[0].set_yticks([0, 100])
        grid[0].set_xlim(0, edges_s[-1])
        grid[-1].set_xlabel("emulated s since the execution's start")
        figure.supylabel("throughput, % of the link's rate", fontsize=9)
        figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    told = "; ".join(shown.values())
    return Picture(name, f"Bytes of links in an execution during the fault: {told}.", figure)


def links_shown(failure: Mapping[str, Any], baseline: CaseData, during: CaseData) -> dict[str, str]:
    """Choose failed and degraded links, and of the others those whose bytes changed most and least.

    Each has a label: its bytes in an execution during the fault and in one before, of its busier
    direction.
    """
    struck = dict.fromkeys(analysis.failed_links(during.topology, failure), " (failed)")
    struck |= dict.fromkeys(analysis.degraded_links(failure), " (degraded)")
    before, after = (_link_bytes(case) for case in (baseline, during))
    changes = {
        link: (after[link] - before[link]) / during.topology.link_by_name[link].rate_bps
        for link in before.keys() & after.keys()
    }
    used = {link for link in changes if before[link] + after[link] > 0}
    order = sorted(used - struck.keys(), key=lambda link: (-abs(changes[link]), link))
    chosen = [*sorted(struck.keys() & changes.keys())[:MOST_STRUCK], *order[:MOST_CHANGED]]
    chosen += order[MOST_CHANGED:][-LEAST_CHANGED:]
    labels = {}
    for link in chosen:
        name, now = link + struck.get(link, ""), human_bytes(after[link])
        labels[link] = f"{name}: {now}, {human_bytes(before[link])} without fault"
    return labels


def _link_bytes(case: CaseData) -> dict[str, float]:
    """The bytes of each link in an execution."""
    executions, use = len(case.executions["number"]), analysis.link_use([case])
    return {name: used.size_bytes / executions for name, used in use.items()}


def _draw(axes: Axes, case: CaseData, link: Link, edges_s: Floats) -> None:
    for direction, words, colour, dash in (
        ("up", "up, away from the GPUs", SERIES[0], "-"),
        ("down", "down, towards the GPUs", SERIES[4], "--"),
    ):
        share = 100 * analysis.throughput_bps(case, link, direction, edges_s) / link.rate_bps
        axes.stairs(share, edges_s, color=colour, linestyle=dash, linewidth=1.1, label=words)
