"""Algorithms in closed form: the textbook's and the rail-only paper's bandwidth terms.

`x` GPUs in each of `y` HB domains, `hb` and `nic` the bandwidths C_F and C_S of a GPU in bytes/s,
`size` the collective's size in bytes as nccl-tests count it. Seconds. Each step costs
the latency of its path once, if the grid has latencies; a message has headers, if it frames them.
Formulas have D for the size, of an all-to-all for the bytes of each ordered pair.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from model.fabric.spec import FabricKind
from model.workload.double_tree import rounds

# Seconds, or steps.
Part = TypeVar("Part", int, float)


@dataclass(frozen=True)
class Grid:
    """The grid of GPUs, its two bandwidths, and the slices of a pipelined algorithm.

    In an all-to-all, a GPU exchanges with `peers` partners at once.
    Latencies in seconds: `hb_s` of a path within a domain, `nic_s` along a rail, `across_s` to
    another rail of another domain. `on_wire` returns the bytes of a message of some bytes on a NIC
    link, headers included.
    """

    x: int
    y: int
    hb: float
    nic: float
    slices: int = 1
    hb_s: float = 0.0
    nic_s: float = 0.0
    across_s: float = 0.0
    peers: int = 1
    on_wire: Callable[[float], float] = float

    @property
    def n(self) -> int:
        """The number of GPUs."""
        return self.x * self.y

    def within_s(self, steps: int, each: float) -> float:
        """Time of steps of `each` bytes within a domain."""
        return steps * (each / self.hb + self.hb_s)

    def along_s(self, steps: int, each: float) -> float:
        """Time of steps of `each` bytes along a rail."""
        return steps * (self.framed(each) / self.nic + self.nic_s)

    def framed(self, each: float, times: int = 1) -> float:
        """Return the bytes of as many messages of `each` bytes on a NIC link."""
        return times * self.on_wire(each)

    def to_domain_s(self, each: float) -> float:
        """Time of exchanges of `each` bytes with all GPUs of the domain."""
        return (self.x - 1) * each / self.hb + self.batches(self.x - 1) * self.hb_s

    def to_domains_s(self, each: float) -> float:
        """Time of exchanges of `each` bytes with the GPUs of all other domains, on all rails.

        Of the partners at once, only a single one, or those of domains of one GPU, are all on the
        own rail.
        """
        others = self.x * (self.y - 1)
        batches = self.batches(others)
        along = self.y - 1 if self.peers == 1 else batches * (self.x == 1)
        latencies_s = along * self.nic_s + (batches - along) * self.across_s
        return self.framed(each, others) / self.nic + latencies_s

    def batches(self, partners: int) -> int:
        """The number of exchanges one after the other with so many partners."""
        return -(-partners // self.peers)

    def slowest_s(self, steps: int, each: float) -> float:
        """Time of steps of `each` bytes over a ring's slowest edge, as a NIC."""
        within = self.within_s(steps, each) if self.x > 1 else 0.0
        return max(within, self.along_s(steps, each) if self.y > 1 else 0.0)

    @property
    def neighbors(self) -> int:
        """The GPUs of a GPU's domain and of its rail, itself left out."""
        return self.x - 1 + self.y - 1


@dataclass(frozen=True)
class ClosedForm:
    """Time, steps and transfers of an algorithm on any grid of GPUs.

    `completion_s` is the completion time on a kind of fabric; `steps` the
    number of transfers that run one after the other; `count` that of all transfers, by default one
    of every GPU in each step.
    """

    completion_s: Callable[[FabricKind, Grid, float], float]
    steps: Callable[[Grid], int]
    count: Callable[[Grid], int] | None = None

    def transfers(self, grid: Grid) -> int:
        """The number of all transfers."""
        return self.count(grid) if self.count else grid.n * self.steps(grid)


def _pipelined(slices: int, *stages: Part) -> Part:
    """All stages for one slice, and the longest one for each other slice."""
    return sum(stages) + (slices - 1) * max(stages)


def _hierarchical_s(_kind: FabricKind, grid: Grid, size: float) -> float:
    """(y-1)D/(xy C_S) + (x-1)D/(x C_F) (section III-B); of k slices, all but one overlap."""
    each = size / grid.slices
    along_rails = grid.along_s(grid.y - 1, each / grid.n)
    return _pipelined(grid.slices, along_rails, grid.within_s(grid.x - 1, each / grid.x))


def _hierarchical_all_reduce_s(_kind: FabricKind, grid: Grid, size: float) -> float:
    """The HB links reduce all slices, then gather them; a slice is on its rail meanwhile."""
    each = size / grid.slices
    along_rails = 2 * grid.along_s(grid.y - 1, each / grid.n)
    return _there_and_back(grid.slices, along_rails, grid.within_s(grid.x - 1, each / grid.x))


def _there_and_back(k: int, along: Part, within: Part) -> Part:
    """All of k slices, each `within` a domain, `along` its rail, and `within` again.

    Either the HB links never wait, or they wait for the first or for the last slice.
    """
    return max(2 * k * within, (k + 1) * within + along, 2 * within + k * along)


def _double_tree_s(_kind: FabricKind, grid: Grid, size: float) -> float:
    """2(x-1)D/(x C_F), and D/(xk C_S) for each of the trees' rounds, of k slices."""
    count = len(rounds(grid.y, grid.slices))
    along_rails = grid.along_s(count, size / (grid.x * grid.slices))
    return along_rails + grid.within_s(2 * (grid.x - 1), size / grid.x)


def _two_step_s(_kind: FabricKind, grid: Grid, size: float) -> float:
    """x(y-1)D/C_S + y(x-1)D/C_F (section IV-B); of k slices, all but one overlap."""
    pair = size / grid.n / grid.slices
    along_rails = grid.along_s(grid.y - 1, grid.x * pair)
    return _pipelined(grid.slices, along_rails, grid.within_s(grid.x - 1, grid.y * pair))


def _direct_s(kind: FabricKind, grid: Grid, size: float) -> float:
    """The longer of x(y-1)D/C_S and (x-1)D/C_F (section IV-B).

    The HB links of a rail-only fabric also carry what is forwarded: y(x-1) instead of x-1.
    """
    pair = size / grid.n
    forwarded = grid.framed(pair, grid.y - 1) if kind is FabricKind.RAIL_ONLY else 0.0
    return max(grid.to_domains_s(pair), grid.to_domain_s(pair + forwarded))


def _direct_scatter_s(kind: FabricKind, grid: Grid, size: float) -> float:
    """As a gather; on rail-only, the NICs of the root's domain share the data, its HB link has it.

    The longer of (y-1)D/(n C_S) and (x-1)D/(x C_F); most of the latter is forwarded. Where the HB
    link is the slower one, its flows have equal shares until those within the domain end; the
    headers of the others are left then.
    """
    if kind is not FabricKind.RAIL_ONLY or grid.x == 1 or grid.y == 1:
        return _direct_gather_s(kind, grid, size)
    shard = size / grid.n
    along = grid.framed(shard, grid.y - 1)
    nic, hb = grid.nic / (grid.y - 1), grid.hb / (grid.x - 1)
    if nic <= hb / grid.y:
        return along / grid.nic + grid.across_s
    headers = along / (grid.y - 1) - shard
    return shard * grid.y / hb + headers / min(nic, hb / (grid.y - 1)) + grid.across_s


def _direct_gather_s(_kind: FabricKind, grid: Grid, size: float) -> float:
    """The longer of x(y-1)D/(n C_S) and (x-1)D/(n C_F), into the root; all begin at once."""
    shard, across = size / grid.n, grid.x * (grid.y - 1)
    latency_s = grid.across_s if grid.x > 1 else grid.nic_s
    along_s = grid.framed(shard, across) / grid.nic + latency_s if across else 0.0
    return max(along_s, (grid.x - 1) * shard / grid.hb + grid.hb_s if grid.x > 1 else 0.0)


def _pairwise_s(_kind: FabricKind, grid: Grid, size: float) -> float:
    """x(y-1)D/C_S + (x-1)D/C_F, one partner at a time."""
    pair = size / grid.n
    return grid.to_domains_s(pair) + grid.to_domain_s(pair)


def _chain_s(grid: Grid, chunk: float, count: int) -> float:
    """The first of `count` chunks over all n-1 edges, then the others over the slowest one."""
    first = grid.along_s(grid.y - 1, chunk) + grid.within_s(grid.y * (grid.x - 1), chunk)
    return first + grid.slowest_s(count - 1, chunk)


def _closing(grid: Grid) -> Grid:
    """Return the grid with the latencies of a ring's edges.

    Over pairs of GPUs in an odd number of domains, the edge that closes a ring crosses rails.
    """
    crosses = grid.x == 2 and grid.y > 1 and grid.y % 2
    return replace(grid, nic_s=grid.across_s) if crosses else grid


def _ring_s(_kind: FabricKind, grid: Grid, size: float) -> float:
    """(n-1)/n · D/C_S (textbook): each shard travels to all other GPUs."""
    grid = _closing(grid)
    return grid.slowest_s(grid.n - 1, size / grid.n)


def _rings_s(_kind: FabricKind, grid: Grid, size: float) -> float:
    """(n-1)/n · D/(x C_S): a ring for each rail, which carries a part of each shard.

    A GPU's HB link carries all rings but the one that leaves the domain there.
    """
    grid, part = _closing(grid), size / (grid.n * grid.x)
    if grid.y == 1:
        return grid.within_s(grid.n - 1, grid.x * part)
    within = grid.within_s(grid.n - 1, (grid.x - 1) * part) if grid.x > 1 else 0.0
    return max(grid.along_s(grid.n - 1, part), within)


def _nvls_s(_kind: FabricKind, grid: Grid, size: float) -> float:
    """(x+1)D/(x C_F) or RD/(xk C_S): HB switches reduce and multicast; trees of R rounds on rails.

    NCCL's NVLS tree, of k slices: between nodes it has no other NVLS without switches that reduce.
    """
    each = size / grid.x / grid.slices
    first, last = (grid.along_s(len(rounds(grid.y, k)), each) for k in (1, grid.slices))
    return _in_switches_s(grid, size, first, last)


def _nvls_sharp_s(_kind: FabricKind, grid: Grid, size: float) -> float:
    """(x+1)D/(x C_F) or D/(x C_S): rail switches reduce and multicast, too."""
    along = grid.along_s(min(1, grid.y - 1), size / grid.x / grid.slices)
    return _in_switches_s(grid, size, along, grid.slices * along)


def _in_switches_s(grid: Grid, size: float, first: float, last: float) -> float:
    """Reduce a slice in an HB switch, on its rail, and multicast it, while others do the same.

    Rails have the `first` slice when it is on its rail this long, and the `last` one after all.
    A GPU's HB link carries its slice to the switch to be reduced, and 1/x of it to be multicast
    (Ishii and Wells, The NVLink-Network Switch, Hot Chips 34, 2022: N+1 of 2N).
    """
    if grid.x == 1:
        return last
    within = grid.within_s(1, size / grid.slices)
    both = grid.within_s(1, (1 + 1 / grid.x) * size / grid.slices)
    return 2 * within + max(last, first + (grid.slices - 1) * both)


def _stages_s(_kind: FabricKind, grid: Grid, size: float) -> float:
    """A chain of microbatches; from domain to domain, the ranks' order crosses rails."""
    if grid.x > 1:
        grid = replace(grid, nic_s=grid.across_s)
    return _chain_s(grid, size / grid.slices, grid.slices)


def _halving_doubling_s(_kind: FabricKind, grid: Grid, size: float) -> float:
    """The bytes of the hierarchical algorithm, half of those left in a step for each bit."""
    within = sum(grid.within_s(1, size / 2**bit) for bit in range(1, grid.x.bit_length()))
    along = sum(grid.along_s(1, size / grid.x / 2**bit) for bit in range(1, grid.y.bit_length()))
    return 2 * (within + along)


# AllGather and ReduceScatter.
RING = ClosedForm(_ring_s, steps=lambda grid: grid.n - 1)
RINGS = ClosedForm(
    _rings_s, steps=lambda grid: grid.n - 1, count=lambda grid: grid.x * grid.n * (grid.n - 1)
)
HIERARCHICAL = ClosedForm(
    _hierarchical_s,
    steps=lambda grid: _pipelined(grid.slices, grid.x - 1, grid.y - 1),
    count=lambda grid: grid.n * grid.neighbors * grid.slices,
)
# AllReduces: a ReduceScatter, then an AllGather that takes as long.
RING_ALL_REDUCE = ClosedForm(
    lambda kind, grid, size: 2 * RING.completion_s(kind, grid, size),
    steps=lambda grid: 2 * RING.steps(grid),
)
RINGS_ALL_REDUCE = ClosedForm(
    lambda kind, grid, size: 2 * RINGS.completion_s(kind, grid, size),
    steps=lambda grid: 2 * RINGS.steps(grid),
    count=lambda grid: 2 * RINGS.transfers(grid),
)
HIERARCHICAL_ALL_REDUCE = ClosedForm(
    _hierarchical_all_reduce_s,
    steps=lambda grid: _there_and_back(grid.slices, 2 * (grid.y - 1), grid.x - 1),
    count=lambda grid: 2 * grid.n * grid.neighbors * grid.slices,
)
HALVING_DOUBLING = ClosedForm(_halving_doubling_s, steps=lambda grid: 2 * (grid.n.bit_length() - 1))
# An AllReduce within the domains, and along each rail by a double binary tree: twice within all
# domains, and every slice up and down its rail's tree.
DOUBLE_TREE = ClosedForm(
    _double_tree_s,
    steps=lambda grid: 2 * (grid.x - 1) + len(rounds(grid.y, grid.slices)),
    count=lambda grid: 2 * grid.n * (grid.x - 1) + 2 * grid.x * (grid.y - 1) * grid.slices,
)
# All-to-alls. In slices, one is on the NICs while the next is on the HB links: both steps of a
# slice, and the longer one of all others. Direct ones use NICs and HB links at the same time.
TWO_STEP = replace(HIERARCHICAL, completion_s=_two_step_s)
DIRECT = ClosedForm(
    _direct_s,
    steps=lambda grid: grid.batches(max(grid.x * (grid.y - 1), grid.x - 1)),
    count=lambda grid: grid.n * (grid.n - 1),
)
PAIRWISE = ClosedForm(_pairwise_s, steps=lambda grid: grid.n - 1)
# A Broadcast, chunk after chunk from GPU to GPU: the last one leaves after n-1 others. A Send/Recv
# chain of pipeline stages, microbatch after microbatch. Every one crosses every edge.
CHAIN = ClosedForm(
    lambda _kind, grid, size: _chain_s(grid, size / grid.n, grid.n),
    steps=lambda grid: 2 * (grid.n - 1),
    count=lambda grid: grid.n * (grid.n - 1),
)
STAGES = ClosedForm(
    _stages_s,
    steps=lambda grid: grid.n - 1 + grid.slices - 1,
    count=lambda grid: grid.slices * (grid.n - 1),
)
# AllReduces in switches: each GPU sends each slice to its HB switch, and by its rail's trees.
NVLS = ClosedForm(
    _nvls_s,
    steps=lambda grid: 2 + len(rounds(grid.y, grid.slices)),
    count=lambda grid: 2 * (grid.n + grid.x * (grid.y - 1)) * grid.slices,
)
NVLS_SHARP = ClosedForm(
    _nvls_sharp_s,
    steps=lambda grid: 2 + grid.slices,
    count=lambda grid: 3 * grid.n * grid.slices,
)
# Shards from the root to all others, or from them to the root.
DIRECT_SCATTER = ClosedForm(_direct_scatter_s, lambda _: 1, count=lambda grid: grid.n - 1)
DIRECT_GATHER = ClosedForm(_direct_gather_s, lambda _: 1, count=lambda grid: grid.n - 1)
# Within the root's domain, and from it along all rails: the time of a ReduceScatter.
HIERARCHICAL_SCATTER = ClosedForm(
    _hierarchical_s,
    steps=lambda grid: grid.neighbors,
    count=lambda grid: grid.n - 1,
)
# A Broadcast within the root's domain, along all rails, y chunks over y-1 edges, and within all
# domains: as long as a ReduceScatter and an AllGather.
HIERARCHICAL_BROADCAST = ClosedForm(
    lambda kind, grid, size: 2 * HIERARCHICAL.completion_s(kind, grid, size),
    steps=lambda grid: 2 * grid.neighbors,
    count=lambda grid: grid.x - 1 + grid.n * (grid.y - 1) + grid.n * (grid.x - 1),
)
