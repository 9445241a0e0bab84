"""Charts of a run: times, ratios to the model, steps, pairs, bandwidths, queue pairs, queues."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from model.arrays import Floats, Ints
from model.sentences import counted
from results.figures import kit
from results.figures.paper import draw_pairs
from results.report import analysis
from results.report.run_data import CaseData, Columns, rows
from results.sections.section import Result, human_bytes, range_of, without_fabric
from results.verdicts.verdict import is_timed

ROW, LEGEND_ROW = 0.34, 0.18
MOST_TICKS = 7


def completion(cases: Sequence[Result]) -> kit.Picture:
    """Measured median with the range of the executions, beside the model, for every case.

    What broke off has no completion time.
    """
    with case_rows(cases, 1.1, ROW) as (figure, axes):
        for row, case in enumerate(cases):
            if not case.get("incomplete"):
                draw_measured(axes, case["measured_s"], row, "o", kit.MEASURED)
            axes.plot(
                case["modeled_s"], row, "|", color=kit.MODELED, markersize=15, markeredgewidth=2
            )
            ratio = f"{case['ratio']:.3f}" if is_timed(case) else "-"
            write_beside(axes, row, f"{ratio} {case['verdict']}")
        axes.plot([], [], "o", color=kit.MEASURED, label="measured, bar: all executions")
        axes.plot([], [], "|", color=kit.MODELED, markersize=11, markeredgewidth=2, label="modeled")
        axes.set_xlim(0, axes.get_xlim()[1] * 1.03)
        axes.set_xlabel("completion time (emulated s); measured / modeled")
        figure.legend(loc="outside upper left", ncols=2)
    whole = [case for case in cases if not case.get("incomplete")]
    return kit.Picture("completion", _completion_in_words(whole), figure)


def _completion_in_words(cases: Sequence[Result]) -> str:
    """Name the fastest and the slowest of some cases, if there are any."""
    told = f"Completion times, {len(cases)} in all"
    if not cases:
        return f"{told}."
    fastest = min(cases, key=lambda case: float(case["measured_s"]["median"]))
    slowest = max(cases, key=lambda case: float(case["measured_s"]["median"]))
    ends = [f"{case['case']}, {case['measured_s']['median']:.3f} s" for case in (fastest, slowest)]
    return f"{told}, from {' to '.join(ends)}." if cases[1:] else f"{told}: {ends[0]}."


def ratios(cases: Sequence[Result]) -> kit.Picture:
    """Every execution's time over the model's, less one, in percent."""
    with case_rows(cases, 1.0, ROW) as (figure, axes):
        for row, case in enumerate(cases):
            values = [100 * (s / case["modeled_s"] - 1) for s in case["measured_s"]["values"]]
            axes.plot(values, [row] * len(values), "o", color=kit.MEASURED, alpha=0.6, markersize=5)
        axes.axvline(0, color=kit.MODELED, linewidth=1.5)
        axes.set_xlabel("measured - modeled, % of the model; a dot is an execution")
        widest = max(2.0, *(abs(x) for x in axes.get_xlim()))
        axes.set_xlim(-widest, widest)
    worst = max(cases, key=lambda case: abs(case["ratio"] - 1))
    sentence = f"The largest residual of a median is {100 * (worst['ratio'] - 1):+.1f}%"
    return kit.Picture("residuals", f"{sentence}, in {worst['case']}.", figure)


@contextmanager
def case_rows(cases: Sequence[Result], height: float, row: float) -> Iterator[tuple[Figure, Axes]]:
    """Yield a figure and its axes, with a row of this height in inches for each case."""
    with kit.drawing(height + row * len(cases), kit.WIDE + 0.4) as figure:
        axes = figure.add_subplot()
        yield figure, axes
        axes.set_yticks(range(len(cases)), [kit.shortened(case["case"]) for case in cases])
        axes.set_ylim(len(cases) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")


def draw_measured(axes: Axes, measured: Result, height: float, marker: str, colour: str) -> None:
    """Draw the median and the range of executions at this height, if they are known."""
    if measured["min"] is not None:
        ends = [measured["min"], measured["max"]]
        (bar,) = axes.plot(ends, [height] * 2, color=colour, linewidth=5, alpha=0.45)
        bar.set_solid_capstyle("butt")
    if measured["median"] is not None:
        axes.plot(measured["median"], height, marker, color=colour, markersize=6)


def write_beside(axes: Axes, row: int, text: str) -> None:
    """Write at the right of a row."""
    where = ("axes fraction", "data")
    axes.annotate(text, (1.01, row), xycoords=where, va="center", fontsize=8)


def step_times(case: CaseData, steps: Sequence[analysis.Step], name: str) -> kit.Picture:
    """The end of each step, measured beside modeled."""
    with kit.drawing(2.4) as figure:
        axes = figure.add_subplot()
        numbers, small = [step.number for step in steps], len(steps) <= 40
        for label, colour, dash, marker, size, seconds in (
            ("modeled", kit.MODELED, "-", "|", 9, [step.modeled_s for step in steps]),
            ("measured", kit.MEASURED, "--", "o", 4, [step.measured_s for step in steps]),
        ):
            (line,) = axes.plot(numbers, seconds, dash, color=colour, markersize=size, label=label)
            line.set_marker(marker if small else "")
        axes.set_xlabel("step: the k-th transfer of every GPU")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_ylabel("all arrived (s)")
        kit.from_zero(axes)
        axes.legend()
    longest = max(steps, key=lambda step: step.seconds)
    sentence = (
        f"{case.name} has {counted(len(steps), 'step')}; step {longest.number} needs a link the "
        f"longest, {longest.busiest}, for {longest.seconds:.3f} s"
    )
    return kit.Picture(name, f"{sentence}.", figure)


def heat_map(case: CaseData, name: str) -> kit.Picture:
    """The bytes between all pairs of GPUs in an execution; pairs without bytes stay empty."""
    matrix = analysis.pair_bytes(case)
    ranks, pairs = len(matrix), matrix[matrix > 0]
    with kit.drawing(3.4, 4.0) as figure:
        axes = figure.add_subplot()
        borders = np.cumsum(case.topology.spec.job_grid.sizes)[:-1].tolist()
        draw_pairs(axes, matrix, ranks, borders, "cividis_r")
        ticks = range(0, ranks, max(1, ranks // 8))
        names = [case.topology.job_gpus[rank].name for rank in ticks]
        axes.set_xticks(ticks, names, rotation=90)
        axes.set_yticks(ticks, names)
    sizes = range_of(pairs, human_bytes)
    told = f"In {case.name}, {len(pairs)} of {ranks * (ranks - 1)} pairs of GPUs exchange bytes"
    return kit.Picture(name, f"{told}, {sizes} a pair.", figure)


def transfer_times(kind: str, cases: Sequence[CaseData]) -> kit.Picture:
    """The distribution of the times of all transfers that arrived, case by case."""
    shares = np.linspace(0, 1, 201)
    with kit.drawing(2.3 + LEGEND_ROW * len(cases)) as figure:
        axes = figure.add_subplot()
        for index, case in enumerate(cases):
            done = case.measured["arrived_ns"] > 0
            taken_ms = (case.measured["arrived_ns"] - case.measured["started_ns"])[done] / 1e6
            label = kit.shortened(without_fabric(case.name))
            look = kit.look(index, marker=None, label=label)
            at_most_ms = np.quantile(taken_ms, shares, method="inverted_cdf")
            axes.plot(at_most_ms, 100 * shares, **look)
        # Over two decades there are at least two powers of ten to label.
        if axes.dataLim.xmax > 100 * axes.dataLim.xmin > 0:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(kit.PLAIN)
            axes.minorticks_off()
        axes.set_xlabel("time of a transfer (ms), from its start to its last byte")
        axes.set_ylabel("% of transfers")
        figure.legend(loc="outside upper left")
    told = f"Distribution of the transfers' times on {kind}."
    return kit.Picture(f"transfer-times-{kind}", told, figure)


def bus_bandwidth(cases: Sequence[Result]) -> kit.Picture:
    """Bus bandwidth against size as nccl-tests print it, in figures of the real platform."""
    names = list(dict.fromkeys(case["case"] for case in cases))
    ordered = sorted(cases, key=_real_bytes)
    with kit.drawing(2.3 + LEGEND_ROW * len(names)) as figure:
        axes = figure.add_subplot()
        for index, name in enumerate(names):
            same = [case for case in ordered if case["case"] == name]
            sizes = [_real_bytes(case) for case in same]
            busbw = [case["busbw_gbyte_per_s"] for case in same]
            axes.plot(sizes, busbw, **kit.look(index, label=kit.shortened(name)))
            modeled = [case["busbw_gbyte_per_s"] * case["ratio"] for case in same]
            axes.plot(sizes, modeled, "_", color=kit.MODELED, markersize=13, markeredgewidth=1.5)
        axes.plot([], [], "_", color=kit.MODELED, markersize=11, label="modeled")
        axes.set_xscale("log")
        sizes = list(dict.fromkeys(map(_real_bytes, ordered)))
        shown = sizes[:: -(-len(sizes) // MOST_TICKS)]
        kit.label_values(axes, {human_bytes(size): size for size in shown})
        axes.minorticks_off()
        axes.set_xlabel("size (bytes of the real platform)")
        axes.set_ylabel("busbw (GB/s)")
        kit.from_zero(axes)
        figure.legend(loc="outside upper left")
    return kit.Picture("bus-bandwidth", "Bus bandwidth against size, case by case.", figure)


def _real_bytes(case: Result) -> float:
    return float(case["bytes"] * case["size_scale"])


# A name, moments in ns, and the value from each on.
Line = tuple[str, Ints, Floats]
# The queue pairs that send most, and the ports with the longest queues.
MOST_DRAWN = len(kit.SERIES)
PANEL = 1.7
PACKETS = "packets"


def transport_picture(case: CaseData, name: str) -> kit.Picture:
    """Draw queue pairs, queues of ports, and what befell packets, in the last execution."""
    number = int(case.queue_pairs["repeat"].max())
    (row,) = np.flatnonzero(case.executions["number"] == number)
    start_ns, end_s = (case.executions[column][row] for column in ("start_ns", "completion_s"))
    pairs = list(analysis.queue_pairs(case, number))
    pairs.sort(key=lambda pair: -np.ptp(pair[1]["sent_bytes"]))
    queues = [(port, _since(start_ns, of)) for port, of in analysis.ports(case)]
    rates = [(pair, of["ns"], analysis.rates_bps(of) / 1e6) for pair, of in pairs]
    lengths = [(port, of["ns"], of["backlog_bytes"] / 1e3) for port, of in queues]
    panels = {
        "Mbit/s": _first(rates) or rates,
        "queue (kB)": _first(sorted(lengths, key=lambda line: -line[2].max())),
        PACKETS: list(_events([*pairs, *queues])),
    }
    shown = {label: lines for label, lines in panels.items() if lines}
    with kit.drawing(0.8 + PANEL * len(shown), kit.WIDE + 0.4) as figure:
        grid = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (label, lines) in zip(grid, shown.items(), strict=True):
            _draw_lines(axes, label, lines, end_s)
        grid[0].set_xlim(0, end_s or None)
        grid[-1].set_xlabel("emulated s since the execution's start")
    told = f"{len(pairs)} queue pairs of {case.name}: rates, queues of ports, events"
    return kit.Picture(name, f"{told}.", figure)


def _since(start_ns: int, samples: Columns) -> Columns:
    """Return the samples from a moment on, and the last one before it; times count from there."""
    first = max(0, int(np.searchsorted(samples["ns"], start_ns, "right")) - 1)
    since = rows(samples, slice(first, None))
    return {**since, "ns": since["ns"] - start_ns}


def _first(lines: Sequence[Line]) -> list[Line]:
    """Return the first lines that are not of zeros."""
    return [line for line in lines if line[2].any()][:MOST_DRAWN]


def _events(samples: Sequence[analysis.Named]) -> Iterator[Line]:
    """Yield how often each event has happened so far, at all queue pairs or ports."""
    for column, words in analysis.EVENTS.items():
        of = [one for _, one in samples if column in one]
        ns = np.concatenate([np.empty(0, np.int64), *(one["ns"][1:] for one in of)])
        counts = np.concatenate([np.empty(0), *(np.diff(one[column]) for one in of)])
        order = np.argsort(ns, kind="stable")
        order = order[ns[order] > 0]
        if counts[order].any():
            yield words, ns[order], np.cumsum(counts[order])


def _draw_lines(axes: Axes, label: str, lines: Sequence[Line], end_s: float) -> None:
    """Draw lines that hold a value until the next one, and the last one until the end."""
    for index, (name, ns, values) in enumerate(lines):
        line = kit.look(index, marker=None, linewidth=1.1, label=name)
        seconds = np.append(ns, max(ns[-1], end_s * analysis.NS_PER_S)) / analysis.NS_PER_S
        axes.step(seconds, np.append(values, values[-1]), where="post", **line)
    axes.set_ylabel(label)
    kit.from_zero(axes)
    if label == PACKETS:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
