"""NCCL's choice of an algorithm for an AllReduce, by its published tuning model.

From NCCL 2.30.7: `ncclTopoTuneModel` and `ncclTopoGetAlgoTime` in `src/graph/tuning.cc`; rates of
channels as `src/graph/search.cc` finds them on DGX. Latencies are in microseconds, bandwidths in
GB/s. A node is an HB domain.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, log2

VERSION = "2.30.7"
RING, TREE, NVLS = "ring", "tree", "NVLS"
PROTOCOLS = ("LL", "LL128", "Simple")
SIMPLE = 2
# The GPUs of a DGX. The model leaves out that NVLinks limit the channels of more.
MOST_GPUS = 8

# By protocol: baseLatencies, and hwLatencies of NVLink and of the network.
START_US = {TREE: (6.8, 14.0, 8.4), RING: (6.6, 14.0, 8.4)}
NVLINK_US = {TREE: (0.6, 1.25, 4.0), RING: (0.6, 1.9, 3.4)}
NETWORK_US = {TREE: (5.0, 8.5, 14.0), RING: (2.7, 4.0, 14.0)}
# Of NVLS within a node, and of NVLS with a tree between nodes; the part of NVLink that it uses.
NVLS_US, NVLS_TREE_US, NVLS_PART = 25.0, 20.9, 0.85
# GPUs of a node from which on NCCL has NVLS (`ncclNvlsInit` in src/transport/nvls.cc).
NVLS_GPUS = 2
# What the search tries for NVLS in a node (`sm90SpeedArrayIntra`), and the NVLinks of a GPU: 18 of
# 20.6. They carry a channel for each GPU, and the GPU's own one twice (`ncclTopoSearchTryNvls`).
NVLS_RATES, NVLINKS = (60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0), 370.8
# From this rate on, few channels are cut in two (`ncclTopoDupChannels`).
CUT_RATE, CUT_CHANNELS = 25.0, 4
# A ring of protocol Simple between nodes, once each GPU's part of a channel has 64 bytes.
PLATEAU, PLATEAU_BYTES = 1.4, 64
# The part of its rate that a tree has where a node has one GPU: NCCL's pattern TREE, not balanced.
TREE_OF_ONE = 0.85
# The part of its rate that a tree has, by protocol and size: 64 bytes, then twice as much each.
TREE_PARTS: tuple[tuple[float, ...], ...] = (
    (*(1,) * 4, 0.9, 0.8, *(0.7,) * 4, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, *(1,) * 4),
    (*(1,) * 5, 0.9, *(0.8,) * 3, 0.7, *(0.6,) * 6, 0.8, *(0.9,) * 4, 1, 1),
    (*(0.9,) * 7, 0.8, 0.7, 0.6, 0.6, *(0.5,) * 4, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
)


@dataclass(frozen=True)
class Limits:
    """The most that a channel carries on a number of nodes; of protocol LL, all of them."""

    all_ll: float
    ring_ll128: float
    tree_ll128: float
    tree: float
    nvls: float = 0.0


@dataclass(frozen=True)
class Platform:
    """Number and rate of channels within a node, that of a NIC between nodes, and their limits.

    `overhead_us` is that of a message; `limits` are for one, two and more nodes.
    """

    within: tuple[int, float]
    between: float
    overhead_us: float
    limits: tuple[Limits, Limits, Limits]

    def to_others(self, gpus: int) -> tuple[int, float]:
        """Return the number and rate of the channels that a node of so many GPUs has to others."""
        cut = 2 if self.between >= CUT_RATE and gpus <= CUT_CHANNELS else 1
        return cut * gpus, self.between / cut


OF_A100 = (Limits(87.7, 20, 20, 24), Limits(22.5, 20, 20, 23.6), Limits(19, 20, 20, 17.8))
OF_H100 = (
    Limits(141, 36.7, 36.7, 38.7, inf),
    Limits(39, 36.7, 36.7, 41.4, 57.7),
    Limits(20.4, 36.7, 29, 36, 45.5),
)
HOPPER = Platform((12, 30.0), between=48.0, overhead_us=1.0, limits=OF_H100)
KNOWN = {
    "dgx-a100": Platform((12, 20.0), between=24.0, overhead_us=2.0, limits=OF_A100),
    "dgx-h100": HOPPER,
    "dgx-h200": HOPPER,
}


@dataclass(frozen=True)
class Estimate:
    """The time that NCCL expects of an algorithm with one of its protocols."""

    algorithm: str
    protocol: str
    time_us: float

    def __str__(self) -> str:
        return f"{self.algorithm} ({self.protocol}, {self.time_us:,.0f} us)"


def estimates(name: str, gpus: Sequence[int], size_bytes: float) -> list[Estimate]:
    """Return the best protocol of each algorithm on a known platform, the fastest first.

    Each node has its number of `gpus`, up to `MOST_GPUS`; `size_bytes` is that of the buffer.
    """
    best: dict[str, Estimate] = {}
    model = _Model(KNOWN[name], gpus, size_bytes)
    for found in sorted(model.estimates(), key=lambda estimate: estimate.time_us):
        best.setdefault(found.algorithm, found)
    return list(best.values())


class _Model:
    """The tuning model for an AllReduce of a size on some nodes."""

    def __init__(self, known: Platform, gpus: Sequence[int], size_bytes: float) -> None:
        self._known, self._size = known, size_bytes
        self._nodes, self._ranks = len(gpus), sum(gpus)
        self._least, self._most = min(gpus), max(gpus)
        self._limits = known.limits[min(self._nodes, 3) - 1]
        # All nodes use the fewest channels and the lowest rate that one has (`initTransportsRank`).
        to_others = [known.to_others(count) for count in set(gpus)]
        found = [known.within] if self._nodes == 1 else to_others
        self._channels, self._rate = map(min, zip(*found, strict=True))
        self._depth = int(log2(self._nodes))
        # A ring AllReduce has 2(n-1) steps, of one of n parts each.
        self._per_step = self._ranks / (2 * (self._ranks - 1))

    def estimates(self) -> Iterator[Estimate]:
        """Yield the time of each algorithm with each protocol."""
        for which, protocol in enumerate(PROTOCOLS):
            for name, estimate in ((RING, self._ring), (TREE, self._tree)):
                latency_us, rate = estimate(which)
                yield Estimate(name, protocol, latency_us + self._size / (1e3 * rate))
        if self._limits.nvls and self._least >= NVLS_GPUS:
            latency_us, rate = self._nvls()
            yield Estimate(NVLS, "Simple", latency_us + self._size / (1e3 * rate))

    def _ring(self, which: int) -> tuple[float, float]:
        between, known = 2 * (self._nodes - 1), self._known
        overhead_us = known.overhead_us * (3 if which == SIMPLE else 1) * (self._nodes > 1)
        within_us = max(NVLINK_US[RING][which], overhead_us)
        network_us = NETWORK_US[TREE if self._ranks == self._nodes else RING][which]
        steps_us = (2 * (self._ranks - 1) - between) * within_us + between * network_us
        latency_us = START_US[RING][which] + steps_us
        part_bytes = self._size / (self._channels * self._ranks)
        if which == SIMPLE and self._nodes > 1 and part_bytes >= PLATEAU_BYTES:
            latency_us *= PLATEAU
        total = self._channels * self._rate
        ll128 = min(0.92 * total, self._channels * self._limits.ring_ll128)
        rate = (min(self._limits.all_ll, total / 2), ll128, total)[which]
        return latency_us, rate * self._per_step

    def _tree(self, which: int) -> tuple[float, float]:
        chain_us = (self._ranks // self._nodes - 1) * NVLINK_US[TREE][which]
        latency_us = START_US[TREE][which] + 2 * (chain_us + self._depth * NETWORK_US[TREE][which])
        channels, limits = self._channels, self._limits
        # For two nodes, the search raises the rate within a node, and it alone counts.
        simple = channels * (
            limits.tree if self._nodes == 2 else min(0.92 * self._rate, limits.tree)
        )
        part = 7 / 9 if self._nodes == 1 else 120 / 128
        ll128 = min(part * simple, channels * limits.tree_ll128)
        rate = (min(simple / 3.8, limits.all_ll), ll128, simple)[which]
        if self._least == 1:
            rate *= TREE_OF_ONE
        power = int(log2(self._size / 64)) if self._size >= 64 else len(TREE_PARTS[which])
        return latency_us, rate / 2 * (*TREE_PARTS[which], 1.0)[min(power, len(TREE_PARTS[which]))]

    def _nvls(self) -> tuple[float, float]:
        gpus, most = self._least, NVLS_RATES[0] if self._nodes == 1 else self._known.between
        rates = (rate for rate in NVLS_RATES if rate * (self._most + 1) <= NVLINKS)
        within = 2 * min(most, max(rates)) * NVLS_PART * (gpus - 1) / gpus
        between = most * (1 + (self._nodes == 2))
        rate = gpus * min(within, between, self._limits.nvls)
        return NVLS_US + 2 * self._depth * NVLS_TREE_US, rate * self._per_step
