"""Queue pairs of RoCE and queues of switches over the time of an execution."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from model.arrays import Floats, Ints
from results.figures.kit import SERIES, WIDE, Picture, drawing, look
from results.report.analysis import NS_PER_S
from results.report.run_data import CaseData, Columns, rows

# The queue pairs that send most, and the ports with the longest queues.
MOST_DRAWN = len(SERIES)
PANEL = 1.7
# The columns that name a queue pair, and a port.
QUEUE_PAIR = "source", "destination", "lane", "queue_pair"
PORT = "link", "receiver"
EVENTS = {
    "marked_packets": "packets marked",
    "dropped_packets": "packets dropped",
    "notifications": "notifications",
    "repeated": "packets repeated",
}
Named = tuple[str, Columns]
# A name, moments in ns, and the value from each on.
Line = tuple[str, Ints, Floats]


def queue_pairs(case: CaseData, execution: int) -> Iterator[Named]:
    """Yield the samples of each queue pair in an execution, after its name."""
    gpus = case.topology.job_gpus
    samples = rows(case.queue_pairs, case.queue_pairs["repeat"] == execution)
    for (source, destination, lane, number), mine in _by(samples, QUEUE_PAIR):
        ends = f"{gpus[source].name} to {gpus[destination].name}"
        others = f" lane {lane}" * bool(lane) + f" queue pair {number}" * bool(number)
        yield ends + others, mine


def ports(case: CaseData) -> Iterator[Named]:
    """Yield the samples of each port of a switch, after its name."""
    for (link, receiver), mine in _by(case.queues, PORT):
        yield f"{link} to {receiver}", mine


def _by(samples: Columns, key: tuple[str, ...]) -> Iterator[tuple[tuple[Any, ...], Columns]]:
    """Yield the samples of each value of some columns, in the order of time."""
    of: dict[tuple[Any, ...], list[int]] = {}
    for row, value in enumerate(zip(*(samples[name].tolist() for name in key), strict=True)):
        of.setdefault(value, []).append(row)
    for value, places in of.items():
        yield value, rows(samples, np.array(places))


def rates_bps(samples: Columns) -> Floats:
    """Return the rate of a queue pair from each sample to the next, in bit/s; 0 after the last."""
    rates = np.diff(samples["sent_bytes"]) * 8 * NS_PER_S / np.maximum(1, np.diff(samples["ns"]))
    return np.append(rates, 0.0)


def transport_picture(case: CaseData, name: str) -> Picture:
    """Draw rates of queue pairs, queues of ports, and what befell packets, in the last execution.

    The case must have samples of queue pairs.
    """
    number = int(case.queue_pairs["repeat"].max())
    (row,) = np.flatnonzero(case.executions["number"] == number)
    start_ns, end_s = (case.executions[column][row] for column in ("start_ns", "completion_s"))
    pairs = list(queue_pairs(case, number))
    queues = [(port, {**of, "ns": of["ns"] - start_ns}) for port, of in ports(case)]
    rates = [(pair, of["ns"], rates_bps(of) / 1e6) for pair, of in pairs]
    lengths = [(port, of["ns"], of["backlog_bytes"] / 1e3) for port, of in queues]
    panels = {
        "Mbit/s": _first(rates, np.sum) or rates,
        "queue (kB)": _first(lengths, np.max),
        "packets": list(_events([*pairs, *queues])),
    }
    shown = {label: lines for label, lines in panels.items() if lines}
    with drawing(0.8 + PANEL * len(shown), WIDE + 0.4) as figure:
        grid = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (label, lines) in zip(grid, shown.items(), strict=True):
            _draw(axes, label, lines)
        grid[0].set_xlim(0, end_s or None)
        grid[-1].set_xlabel("emulated s since the execution's start")
    told = f"{len(pairs)} queue pairs of {case.name}: rates, queues of ports, events"
    return Picture(name, f"{told}.", figure)


def _first(lines: list[Line], size: Callable[[Floats], float]) -> list[Line]:
    """Return the lines with the largest values, as `size` takes them together; not of zeros."""
    drawn = (line for line in lines if line[2].any())
    return sorted(drawn, key=lambda line: -size(line[2]))[:MOST_DRAWN]


def _events(samples: Sequence[Named]) -> Iterator[Line]:
    """Yield how often each event has happened so far, at all queue pairs or ports."""
    for column, words in EVENTS.items():
        of = [one for _, one in samples if column in one]
        ns = np.concatenate([np.empty(0, np.int64), *(one["ns"][1:] for one in of)])
        counts = np.concatenate([np.empty(0), *(np.diff(one[column]) for one in of)])
        order = np.argsort(ns, kind="stable")
        order = order[ns[order] > 0]
        if counts[order].any():
            yield words, ns[order], np.cumsum(counts[order])


def _draw(axes: Axes, label: str, lines: Sequence[Line]) -> None:
    """Draw lines that hold a value until the next one."""
    for index, (name, ns, values) in enumerate(lines):
        line = look(index, marker=None, linewidth=1.1, label=name)
        axes.step(ns / NS_PER_S, values, where="post", **line)
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
