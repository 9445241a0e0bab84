"""Bytes, rates and times of a run's records: by link, pair of GPUs, step, queue pair, port."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from model.arrays import Floats, Ints
from model.fabric.build import build_topology
from model.fabric.topology import Hop, Link, LinkKind, Topology
from model.faults import FaultMode, domain_name
from model.routing.paths import Routing
from model.workload.transfers.columns import NONE
from results.report.run_data import CaseData, Columns, rows

NS_PER_S = 1e9
# What befalls packets, by the columns that count it.
EVENTS = {
    "marked_packets": "packets marked",
    "dropped_packets": "packets dropped",
    "notifications": "CNPs",
    "repeated": "packets retransmitted",
}


@dataclass(frozen=True)
class Step:
    """Step k of a case: the k-th transfer that each GPU sends.

    `measured_s` is when the last of them has arrived, the median of the executions; `modeled_s` is
    the model's time for that. `busiest` is the link direction that needs the longest for the bytes
    of this step, by the model's paths, and `seconds` the time that it needs.
    """

    number: int
    transfers: int
    measured_s: float
    modeled_s: float
    busiest: str
    seconds: float


def steps(case: CaseData) -> list[Step]:
    """Return the steps of a case without faults."""
    number, every = step_numbers(case.one["source"], case.one["lane"]), case.measured
    arrived_s, repeats = every["arrived_ns"] / NS_PER_S, every["repeat"]
    step_of, modeled_s = number[every["transfer"]], np.asarray(case.arrival_s)
    paths, found = paths_of(case), []
    for step in range(int(number.max(initial=-1)) + 1):
        chosen, mine = number == step, step_of == step
        busiest, seconds = _busiest(paths, case.one, chosen, case.topology.spec.entropies)
        ends_s = [arrived_s[mine & (repeats == one)].max() for one in np.unique(repeats)]
        measured = float(np.median(ends_s)) if ends_s else float("nan")
        modeled = float(modeled_s[chosen].max())
        found.append(Step(step + 1, int(chosen.sum()), measured, modeled, busiest, seconds))
    return found


def step_numbers(sources: Ints, lanes: Ints) -> Ints:
    """Number each GPU's transfers from 0, in the order of the schedule; parts have one number."""
    part = (np.diff(lanes, prepend=0) == 1) & (np.diff(sources, prepend=NONE) == 0)
    order = np.argsort(sources, kind="stable")
    first = np.searchsorted(sources[order], sources[order])
    count = np.append(0, np.cumsum(~part[order]))
    numbers = np.empty_like(order)
    numbers[order] = count[1:] - count[first] - 1
    return numbers


ENDS = ("source", "destination", "lane")
Paths = Mapping[tuple[int, int, int], list[Hop]]


def paths_of(case: CaseData) -> Paths:
    """Return the path of every pair of ranks that exchange bytes, on the fabric without faults.

    Where packets or queue pairs take several, it has all of them, one behind the other.
    """
    routing, gpus = Routing(case.topology), case.topology.job_gpus
    pairs = set(zip(*(case.one[name].tolist() for name in ENDS), strict=True))
    each = range(case.topology.spec.entropies)
    return {
        (a, b, lane): [h for n in each for h in routing.path(gpus[a], gpus[b].by(lane), n)]
        for a, b, lane in pairs
    }


def _busiest(
    paths: Paths, transfers: Columns, chosen: np.ndarray, several: int
) -> tuple[str, float]:
    """The link direction that needs the longest for some transfers, and how long."""
    needs_s: dict[Hop, float] = {}
    columns = (transfers[name][chosen].tolist() for name in (*ENDS, "size_bytes"))
    for *pair, size_bytes in zip(*columns, strict=True):
        for hop in paths[tuple(pair)]:
            needs_s[hop] = needs_s.get(hop, 0.0) + size_bytes * 8 / hop.link.rate_bps / several
    if not needs_s:
        return "none", 0.0
    busiest = max(needs_s, key=lambda hop: needs_s[hop])
    return f"{busiest.sender} to {busiest.receiver}", needs_s[busiest]


def pair_bytes(case: CaseData) -> Floats:
    """Return the bytes from each rank (row) to each other rank in an execution."""
    ranks = len(case.topology.job_gpus)
    matrix = np.zeros((ranks, ranks))
    np.add.at(matrix, (case.one["source"], case.one["destination"]), case.one["size_bytes"])
    return matrix


def spans(case: CaseData) -> Columns:
    """Return the transfers that began, of all executions, with their spans and their bytes.

    `begun_ns` and `ended_ns` are of CLOCK_MONOTONIC. A transfer that has not arrived ends with its
    execution; of its bytes, `carried_bytes` are those that the slowest link of its path can carry
    until then.
    """
    began = rows(case.transfers, case.transfers["started_ns"] + case.transfers["arrived_ns"] > 0)
    order = np.argsort(case.executions["number"])
    of = order[np.searchsorted(case.executions["number"], began["repeat"], sorter=order)]
    start_ns, arrived = case.executions["start_ns"][of], began["arrived_ns"] > 0
    begun_ns = start_ns + began["started_ns"]
    # An agent may begin a transfer just before it is told of the abort.
    cut_off_ns = np.maximum(begun_ns, case.ends_ns[of])
    ended_ns = np.where(arrived, start_ns + began["arrived_ns"], cut_off_ns)
    carried, cut_off = began["size_bytes"].copy(), rows(began, ~arrived)
    paths = {} if arrived.all() else paths_of(case)
    pairs = zip(*(cut_off[name].tolist() for name in ENDS), strict=True)
    slowest = [min((h.link.rate_bps for h in paths[pair]), default=0) for pair in pairs]
    most = np.array(slowest, float) * (ended_ns - begun_ns)[~arrived]
    carried[~arrived] = np.minimum(carried[~arrived], most / NS_PER_S / 8)
    return {**began, "begun_ns": begun_ns, "ended_ns": ended_ns, "carried_bytes": carried}


def spread_rates(
    transfers: Columns, row: Ints, shape: tuple[int, int], window_ns: tuple[int, int]
) -> Floats:
    """Return the rate of each row in each slice of a window of time, in bit/s.

    Transfers have `spans`, each is in one row; its bytes are spread evenly over its span.
    """
    zero_ns, slice_ns = window_ns[0], (window_ns[1] - window_ns[0]) / shape[1]
    begin = (transfers["begun_ns"] - zero_ns) / slice_ns
    end = np.maximum((transfers["ended_ns"] - zero_ns) / slice_ns, begin + 1e-9)
    bps = transfers["carried_bytes"] * 8 / (end - begin) / slice_ns * NS_PER_S
    rates = np.zeros(shape)
    for number in range(shape[1]):
        share = np.clip(np.minimum(end, number + 1) - np.maximum(begin, number), 0, None)
        np.add.at(rates[:, number], row, share * bps)
    return rates


# The column of a sample that counts each direction: up is away from the GPUs, down towards them.
DIRECTIONS = {"up": "received_bytes", "down": "sent_bytes"}


def sample_times_s(case: CaseData) -> Floats:
    """The moment of each sample of a link, in seconds since the first execution's start."""
    seconds: Floats = (case.link_samples["ns"] - case.begun_ns) / NS_PER_S
    return seconds


def throughput_bps(case: CaseData, link: Link, direction: str, edges_s: Floats) -> Floats:
    """The mean rate in bit/s of one direction of a link in each slice between `edges_s`.

    A counter counts a frame of up to 64 KiB when the link begins to carry it. Its bytes are spread
    over the time that the rate needs for them, behind those of the frame before.
    """
    chosen = case.link_samples["link"] == link.name
    counted = case.link_samples[DIRECTIONS[direction]][chosen].astype(float)
    seconds = sample_times_s(case)[chosen]
    # The bytes that a link of this rate has carried by each edge, of those it was given by then.
    in_time = seconds * link.rate_bps / 8
    carried = np.interp(edges_s, seconds, in_time + np.minimum.accumulate(counted - in_time))
    bps: Floats = np.diff(carried) * 8 / np.diff(edges_s)
    return bps


@dataclass(frozen=True)
class LinkUse:
    """The busier direction of a link over all executions of some cases.

    `share` is its use: bytes over what its rate carries in the time of the executions.
    """

    name: str
    kind: LinkKind
    size_bytes: int
    share: float
    dropped: int


def link_use(cases: Sequence[CaseData]) -> dict[str, LinkUse]:
    """Return the use of every link, by the counters at its upper end before and after each case.

    The cases have one topology. Counters have the links' names of start-up: an optical switch may
    have moved upper ends since.
    """
    carried = defaultdict[str, Ints](lambda: np.zeros(3, np.int64))
    columns = ("sent_bytes", "received_bytes", "dropped_packets")
    for counters in (case.counters for case in cases):
        after, before = counters["moment"] == "after", counters["moment"] == "before"
        deltas = np.array([counters[name][after] - counters[name][before] for name in columns])
        for link, delta in zip(counters["link"][after], deltas.T, strict=True):
            carried[link] += delta
    seconds = sum(float(case.executions["completion_s"].sum()) for case in cases)
    topology, used = cases[0].topology, {}
    counted = {link.lower: link.name for link in build_topology(topology.spec).links}
    for link in topology.links:
        if (name := counted[link.lower]) in carried:
            sent, received, dropped = carried[name].tolist()
            size, capacity_bytes = max(sent, received), link.rate_bps * seconds / 8
            share = size / capacity_bytes if capacity_bytes else 0.0
            used[link.name] = LinkUse(link.name, link.kind, size, share, dropped)
    return used


def failed_parts(topology: Topology, failure: Mapping[str, Any]) -> frozenset[str]:
    """Names of the links, switches and GPUs that a failure broke; of a domain, all its GPUs.

    Degraded links, which go on carrying bytes, are not among them.
    """
    domains = {
        domain_name(domain): [gpu.name for gpu in topology.domain(domain)]
        for domain in range(topology.spec.domains)
    }
    named = set(str(failure["where"]).split(", ")) - degraded_links(failure)
    return frozenset(part for name in named for part in domains.get(name, [name]))


def degraded_links(failure: Mapping[str, Any]) -> frozenset[str]:
    """Names of the links that a failure only slowed down."""
    ending, faults = f" {FaultMode.DEGRADE}", (times["fault"] for times in failure["times"])
    return frozenset(name.removesuffix(ending) for name in faults if name.endswith(ending))


def failed_links(topology: Topology, failure: Mapping[str, Any]) -> frozenset[str]:
    """Names of the links that a failure broke, or cut off from an end that it broke."""
    parts = failed_parts(topology, failure)
    return frozenset(
        link.name
        for link in topology.links
        if not parts.isdisjoint((link.name, link.lower.node, link.upper.node))
    )


Named = tuple[str, Columns]
# The columns that name a queue pair, and a port.
QUEUE_PAIR = "source", "destination", "lane", "queue_pair"
PORT = "link", "receiver"


def queue_pairs(case: CaseData, execution: int) -> Iterator[Named]:
    """Yield the samples of each queue pair in an execution, after its name.

    It has the numbers of lane and queue pair if there are several.
    """
    gpus = case.topology.job_gpus
    samples = rows(case.queue_pairs, case.queue_pairs["repeat"] == execution)
    lanes, several = (bool(samples[column].any()) for column in ("lane", "queue_pair"))
    for (source, destination, lane, number), mine in _by(samples, QUEUE_PAIR):
        ends = f"{gpus[source].name} to {gpus[destination].name}"
        others = f" lane {lane}" * lanes + f" queue pair {number}" * several
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
