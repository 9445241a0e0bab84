"""Algorithms in closed form: the textbook's and the rail-only paper's bandwidth terms.

`x` GPUs in each of `y` HB domains, `hb` and `nic` the bandwidths C_F and C_S of a GPU in bytes/s,
`size` the collective's size in bytes as nccl-tests count it. Seconds; no latency, no headers.
Formulas have D for the size, of an all-to-all for the bytes of each ordered pair.
"""

from collections.abc import Callable
from dataclasses import dataclass

from model.fabric.spec import FabricKind
from model.workload.double_tree import rounds


@dataclass(frozen=True)
class Grid:
    """The grid of GPUs, its two bandwidths, and the slices of a pipelined algorithm."""

    x: int
    y: int
    hb: float
    nic: float
    slices: int = 1

    @property
    def n(self) -> int:
        """The number of GPUs."""
        return self.x * self.y

    @property
    def slowest(self) -> float:
        """The bandwidth of a ring's slowest edge: a NIC, if there are several domains."""
        return self.nic if self.y > 1 else self.hb

    @property
    def peers(self) -> int:
        """The GPUs of a GPU's domain and of its rail, itself left out."""
        return self.x - 1 + self.y - 1


@dataclass(frozen=True)
class ClosedForm:
    """Time, steps and transfers of an algorithm on any grid of GPUs.

    `completion_s` is the bandwidth term of the completion time on a kind of fabric; `steps` the
    number of transfers that run one after the other; `count` that of all transfers, by default one
    of every GPU in each step.
    """

    completion_s: Callable[[FabricKind, Grid, float], float]
    steps: Callable[[Grid], int]
    count: Callable[[Grid], int] | None = None

    def transfers(self, grid: Grid) -> int:
        """The number of all transfers."""
        return self.count(grid) if self.count else grid.n * self.steps(grid)


def _along_rails_s(grid: Grid, pair: float) -> float:
    """Time for `pair` bytes from a GPU to each GPU of all other domains, by its NIC."""
    return grid.x * (grid.y - 1) * pair / grid.nic


def _within_domains_s(grid: Grid, each: float) -> float:
    """Time for `each` bytes from a GPU to each other GPU of its domain."""
    return (grid.x - 1) * each / grid.hb


def _hierarchical_s(_kind: FabricKind, grid: Grid, size: float) -> float:
    """(y-1)D/(xy C_S) + (x-1)D/(x C_F) (section III-B)."""
    along_rails = (grid.y - 1) * size / (grid.n * grid.nic)
    return along_rails + (grid.x - 1) * size / (grid.x * grid.hb)


def _double_tree_s(_kind: FabricKind, grid: Grid, size: float) -> float:
    """2(x-1)D/(x C_F), and D/(xk C_S) for each of the trees' rounds, of k slices."""
    a_round = size / (grid.x * grid.slices * grid.nic)
    along_rails = len(rounds(grid.y, grid.slices)) * a_round
    return along_rails + 2 * (grid.x - 1) * size / (grid.x * grid.hb)


def _two_step_s(_kind: FabricKind, grid: Grid, size: float) -> float:
    """x(y-1)D/C_S + y(x-1)D/C_F (section IV-B)."""
    pair = size / grid.n
    return _along_rails_s(grid, pair) + _within_domains_s(grid, grid.y * pair)


def _two_step_pipelined_s(_kind: FabricKind, grid: Grid, size: float) -> float:
    """The longer step for all slices, and the shorter one for one of them."""
    pair = size / grid.n
    steps = _along_rails_s(grid, pair), _within_domains_s(grid, grid.y * pair)
    return max(steps) + min(steps) / grid.slices


def _direct_s(kind: FabricKind, grid: Grid, size: float) -> float:
    """The longer of x(y-1)D/C_S and (x-1)D/C_F (section IV-B).

    The HB links of a rail-only fabric also carry what is forwarded: y(x-1) instead of x-1.
    """
    pair = size / grid.n
    carried = grid.y * pair if kind is FabricKind.RAIL_ONLY else pair
    return max(_along_rails_s(grid, pair), _within_domains_s(grid, carried))


def _pairwise_s(_kind: FabricKind, grid: Grid, size: float) -> float:
    """x(y-1)D/C_S + (x-1)D/C_F, one partner at a time."""
    pair = size / grid.n
    return _along_rails_s(grid, pair) + _within_domains_s(grid, pair)


def _chain_s(grid: Grid, chunk: float, count: int) -> float:
    """The first of `count` chunks over all n-1 edges, then the others over the slowest one."""
    first = (grid.y - 1) / grid.nic + grid.y * (grid.x - 1) / grid.hb
    return chunk * (first + (count - 1) / grid.slowest)


def _hierarchical_broadcast_s(_kind: FabricKind, grid: Grid, size: float) -> float:
    """2(x-1)D/(x C_F), and 2(y-1)D/(xy C_S) for y chunks over the y-1 edges of a rail."""
    along_rails = 2 * (grid.y - 1) * size / (grid.n * grid.nic)
    return along_rails + 2 * (grid.x - 1) * size / (grid.x * grid.hb)


# AllGather and ReduceScatter. In a ring, (n-1)/n · D/C_S (textbook): each shard travels to all
# other GPUs.
RING = ClosedForm(
    lambda _kind, grid, size: (grid.n - 1) / grid.n * size / grid.slowest,
    steps=lambda grid: grid.n - 1,
)
HIERARCHICAL = ClosedForm(_hierarchical_s, steps=lambda grid: grid.peers)
# AllReduces: a ReduceScatter, then an AllGather that takes as long. Halving and doubling has a step
# for each bit of the rank, and the bytes of the hierarchical algorithm.
RING_ALL_REDUCE = ClosedForm(
    lambda kind, grid, size: 2 * RING.completion_s(kind, grid, size),
    steps=lambda grid: 2 * RING.steps(grid),
)
HIERARCHICAL_ALL_REDUCE = ClosedForm(
    lambda kind, grid, size: 2 * _hierarchical_s(kind, grid, size),
    steps=lambda grid: 2 * grid.peers,
)
HALVING_DOUBLING = ClosedForm(
    lambda kind, grid, size: 2 * _hierarchical_s(kind, grid, size),
    steps=lambda grid: 2 * (grid.n.bit_length() - 1),
)
# An AllReduce within the domains, and along each rail by a double binary tree: twice within all
# domains, and every slice up and down its rail's tree.
DOUBLE_TREE = ClosedForm(
    _double_tree_s,
    steps=lambda grid: 2 * (grid.x - 1) + len(rounds(grid.y, grid.slices)),
    count=lambda grid: 2 * grid.n * (grid.x - 1) + 2 * grid.x * (grid.y - 1) * grid.slices,
)
# All-to-alls. In slices, one is on the NICs while the next is on the HB links: both steps of a
# slice, and the longer one of all others. Direct ones use NICs and HB links at the same time.
TWO_STEP = ClosedForm(_two_step_s, steps=lambda grid: grid.peers)
TWO_STEP_PIPELINED = ClosedForm(
    _two_step_pipelined_s,
    steps=lambda grid: grid.peers + (grid.slices - 1) * max(grid.x - 1, grid.y - 1),
    count=lambda grid: grid.n * grid.peers * grid.slices,
)
DIRECT = ClosedForm(
    _direct_s,
    steps=lambda grid: max(grid.x * (grid.y - 1), grid.x - 1),
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
    lambda _kind, grid, size: _chain_s(grid, size / grid.slices, grid.slices),
    steps=lambda grid: grid.n - 1 + grid.slices - 1,
    count=lambda grid: grid.slices * (grid.n - 1),
)
# A Broadcast within the root's domain, along all rails, and within all domains.
HIERARCHICAL_BROADCAST = ClosedForm(
    _hierarchical_broadcast_s,
    steps=lambda grid: 2 * grid.peers,
    count=lambda grid: grid.x - 1 + grid.n * (grid.y - 1) + grid.n * (grid.x - 1),
)
