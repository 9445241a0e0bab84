"""The strip of time of a fault: traffic of each GPU, the fault, the controller, lost probes."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm

from model.arrays import Floats
from results.report.data.analysis import NS_PER_S, rank_names, spread_rates
from results.report.data.run_data import CaseData, rows
from results.report.drawings.pictures import SERIES, WIDE, Picture, drawing

BINS = 240
STYLES = {
    "begins": ("-", "#b00020"),
    "detected": ("--", SERIES[1]),
    "confirmed": (":", SERIES[2]),
    "ends": ("-", SERIES[3]),
}


def fault_strip(
    failure: Mapping[str, Any], case: CaseData, lost_s: Mapping[str, Sequence[float]], name: str
) -> Picture:
    """Draw the execution during the fault; `lost_s` has the seconds at which probes were lost."""
    end_s = max(float(case.transfers["confirmed_ns"].max()) / NS_PER_S, 1e-9)
    rates = sent_rates(case, end_s)
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
        ticks = range(0, ranks, max(1, ranks // 16))
        names = rank_names(case.topology.job_gpus)
        top.set_yticks(ticks, [names[n] for n in ticks], fontsize=7)
        top.grid(visible=False)
        top.set_xlabel("emulated s since the execution's start")
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
    axes.set_yticks(range(len(lost_s)), list(lost_s), fontsize=7)
    axes.set_ylim(max(1, len(lost_s)) - 0.5, -0.5)
    if happened:
        first, last = happened[0][1], max(moment_s for _, moment_s in happened)
        around = max(0.02, 0.3 * (last - first))
        axes.set_xlim(1e3 * (first - around), 1e3 * (last + around))
    axes.set_xlabel("emulated ms since the execution's start; a stroke is a lost probe")


def mark(axes: Axes, happened: Sequence[tuple[str, float]], scale: float) -> None:
    """Mark the events of a fault; each kind is named once."""
    named: set[str] = set()
    for event, moment_s in happened:
        dash, colour = STYLES[event]
        label = None if event in named else _WORDS[event]
        axes.axvline(moment_s * scale, linestyle=dash, color=colour, linewidth=1.4, label=label)
        named.add(event)


_WORDS = {
    "begins": "the fault begins",
    "detected": "the controller detects it",
    "confirmed": "all new rules are confirmed",
    "ends": "the fault ends",
}


def moments(failure: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return the events of a fault, in seconds since the execution's start."""
    found = []
    for times in failure["times"]:
        begun_s = times["begun_s"]
        found.append(("begins", begun_s))
        for event in ("detected", "confirmed"):
            if times[f"{event}_ms"] is not None:
                found.append((event, begun_s + times[f"{event}_ms"] / 1e3))
        if times["ended_s"] is not None:
            found.append(("ends", times["ended_s"]))
    return found


def sentence(failure: Mapping[str, Any]) -> str:
    """Describe a failure in a sentence."""
    blackout_ms, times = failure["blackout_ms"], failure["times"]
    told = f"{failure['fault']} at {failure['where']} on {failure['fabric']}"
    if times and times[0]["detected_ms"] is not None:
        told += f": detected after {times[0]['detected_ms']:.0f} ms"
    if times and times[0]["confirmed_ms"] is not None:
        told += f", new paths confirmed after {times[0]['confirmed_ms']:.0f} ms"
    return told + ("." if blackout_ms is None else f"; longest blackout {blackout_ms:.0f} ms.")


def sent_rates(case: CaseData, end_s: float) -> Floats:
    """Return the sending rate of each rank (row) in each slice of the first execution, in bit/s."""
    found = case.transfers
    first = rows(found, found["repeat"] == found["repeat"].min())
    return spread_rates(first, first["source"], len(case.topology.job_gpus), end_s / BINS, BINS)
