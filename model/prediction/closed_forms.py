"""Algorithms in closed form: the textbook's and the rail-only paper's bandwidth terms.

`x` GPUs in each of `y` HB domains, `hb` and `nic` the bandwidths C_F and C_S of a GPU in bytes/s,
`size` the collective's size in bytes as nccl-tests count it. Seconds; no latency, no headers.
"""

from abc import ABC, abstractmethod
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


class ClosedForm(ABC):
    """Time, steps and transfers of an algorithm on any grid of GPUs."""

    @abstractmethod
    def completion_s(self, kind: FabricKind, grid: Grid, size: float) -> float:
        """The bandwidth term of the completion time on a kind of fabric."""

    @abstractmethod
    def steps(self, grid: Grid) -> int:
        """The number of transfers that run one after the other."""

    def transfers(self, grid: Grid) -> int:
        """The number of all transfers: every GPU sends one in each step."""
        return grid.n * self.steps(grid)


class Ring(ClosedForm):
    """A ring AllGather or ReduceScatter over all GPUs."""

    def completion_s(self, kind: FabricKind, grid: Grid, size: float) -> float:
        """(n-1)/n · D/C_S (textbook): from domain to domain, the slowest edge is a NIC."""
        slowest = grid.nic if grid.y > 1 else grid.hb
        return (grid.n - 1) / grid.n * size / slowest

    def steps(self, grid: Grid) -> int:
        """Each shard travels to all other GPUs."""
        return grid.n - 1


class Hierarchical(ClosedForm):
    """A hierarchical AllGather or ReduceScatter."""

    def completion_s(self, kind: FabricKind, grid: Grid, size: float) -> float:
        """(y-1)D/(xy C_S) + (x-1)D/(x C_F) (section III-B)."""
        along_rails = (grid.y - 1) * size / (grid.n * grid.nic)
        return along_rails + (grid.x - 1) * size / (grid.x * grid.hb)

    def steps(self, grid: Grid) -> int:
        """To the other GPUs of the domain, and to those of the rail."""
        return grid.x - 1 + grid.y - 1


@dataclass(frozen=True)
class Twice(ClosedForm):
    """An AllReduce: a ReduceScatter, then an AllGather that takes as long."""

    once: ClosedForm

    def completion_s(self, kind: FabricKind, grid: Grid, size: float) -> float:
        """Twice the time of either."""
        return 2 * self.once.completion_s(kind, grid, size)

    def steps(self, grid: Grid) -> int:
        """Twice the steps of either."""
        return 2 * self.once.steps(grid)


class TwoStep(ClosedForm):
    """A two-step all-to-all: within the domains, then along the rails (section IV-B)."""

    def completion_s(self, kind: FabricKind, grid: Grid, size: float) -> float:
        """x(y-1)D/C_S + y(x-1)D/C_F, with D bytes for each ordered pair."""
        pair = size / grid.n
        return _along_rails_s(grid, pair) + _within_domains_s(grid, grid.y * pair)

    def steps(self, grid: Grid) -> int:
        """To the other GPUs of the domain, then to those of the rail."""
        return grid.x - 1 + grid.y - 1


class HalvingDoubling(Hierarchical):
    """Half of an AllReduce by halving and doubling: the bytes of the hierarchical algorithm."""

    def steps(self, grid: Grid) -> int:
        """One for each bit of the rank."""
        return grid.n.bit_length() - 1


class DoubleTree(ClosedForm):
    """An AllReduce within the domains, and along each rail by a double binary tree in slices."""

    def completion_s(self, kind: FabricKind, grid: Grid, size: float) -> float:
        """2(x-1)D/(x C_F), and D/(xk C_S) for each of the trees' rounds, of k slices."""
        a_round = size / (grid.x * grid.slices * grid.nic)
        along_rails = len(rounds(grid.y, grid.slices)) * a_round
        return along_rails + 2 * (grid.x - 1) * size / (grid.x * grid.hb)

    def steps(self, grid: Grid) -> int:
        """To the other GPUs of the domain, the rounds, and again within the domain."""
        return 2 * (grid.x - 1) + len(rounds(grid.y, grid.slices))

    def transfers(self, grid: Grid) -> int:
        """Twice within all domains, and every slice up and down its rail's tree."""
        return 2 * grid.n * (grid.x - 1) + 2 * grid.x * (grid.y - 1) * grid.slices


class TwoStepPipelined(ClosedForm):
    """A two-step all-to-all in slices: while one is on the NICs, the next is on the HB links."""

    def completion_s(self, kind: FabricKind, grid: Grid, size: float) -> float:
        """The longer step for all slices, and the shorter one for one of them."""
        pair = size / grid.n
        steps = _along_rails_s(grid, pair), _within_domains_s(grid, grid.y * pair)
        return max(steps) + min(steps) / grid.slices

    def steps(self, grid: Grid) -> int:
        """Both steps of a slice, and the longer one of all others."""
        within, along = grid.x - 1, grid.y - 1
        return within + along + (grid.slices - 1) * max(within, along)

    def transfers(self, grid: Grid) -> int:
        """Both steps for every slice."""
        return grid.n * (grid.x - 1 + grid.y - 1) * grid.slices


class Chain(ClosedForm):
    """A Broadcast, chunk after chunk from GPU to GPU."""

    def completion_s(self, kind: FabricKind, grid: Grid, size: float) -> float:
        """The first chunk over all n-1 edges, then the n-1 others over the slowest one."""
        return self._chunks_s(grid, size / grid.n, grid.n)

    def _chunks_s(self, grid: Grid, chunk: float, count: int) -> float:
        slowest = grid.nic if grid.y > 1 else grid.hb
        first = (grid.y - 1) / grid.nic + grid.y * (grid.x - 1) / grid.hb
        return chunk * (first + (count - 1) / slowest)

    def steps(self, grid: Grid) -> int:
        """The last chunk leaves after n-1 others, and has n-1 edges."""
        return 2 * (grid.n - 1)

    def transfers(self, grid: Grid) -> int:
        """Every chunk over every edge."""
        return grid.n * (grid.n - 1)


class Stages(Chain):
    """A Send/Recv chain of pipeline stages, microbatch after microbatch."""

    def completion_s(self, kind: FabricKind, grid: Grid, size: float) -> float:
        """The first of k microbatches over all n-1 edges, then the others over the slowest one."""
        return self._chunks_s(grid, size / grid.slices, grid.slices)

    def steps(self, grid: Grid) -> int:
        """The last microbatch leaves after all others, and has n-1 edges."""
        return grid.n - 1 + grid.slices - 1

    def transfers(self, grid: Grid) -> int:
        """Every microbatch over every edge."""
        return grid.slices * (grid.n - 1)


class HierarchicalBroadcast(ClosedForm):
    """A Broadcast within the root's domain, along all rails, and within all domains."""

    def completion_s(self, kind: FabricKind, grid: Grid, size: float) -> float:
        """2(x-1)D/(x C_F), and 2(y-1)D/(xy C_S) for y chunks over the y-1 edges of a rail."""
        along_rails = 2 * (grid.y - 1) * size / (grid.n * grid.nic)
        return along_rails + 2 * (grid.x - 1) * size / (grid.x * grid.hb)

    def steps(self, grid: Grid) -> int:
        """To the other GPUs of the domain, along the rail, and again within the domain."""
        return 2 * (grid.x - 1) + 2 * (grid.y - 1)

    def transfers(self, grid: Grid) -> int:
        """From the root, every chunk over every edge of its rail, and within all domains."""
        return grid.x - 1 + grid.n * (grid.y - 1) + grid.n * (grid.x - 1)


class Direct(ClosedForm):
    """A direct all-to-all, which uses NICs and HB links at the same time (section IV-B)."""

    def completion_s(self, kind: FabricKind, grid: Grid, size: float) -> float:
        """The longer of x(y-1)D/C_S and (x-1)D/C_F, with D bytes for each ordered pair.

        The HB links of a rail-only fabric also carry what is forwarded: y(x-1) instead of x-1.
        """
        pair = size / grid.n
        carried = grid.y * pair if kind is FabricKind.RAIL_ONLY else pair
        return max(_along_rails_s(grid, pair), _within_domains_s(grid, carried))

    def steps(self, grid: Grid) -> int:
        """To the GPUs of other domains, and meanwhile to those of the same one."""
        return max(grid.x * (grid.y - 1), grid.x - 1)

    def transfers(self, grid: Grid) -> int:
        """One for each ordered pair."""
        return grid.n * (grid.n - 1)


class Pairwise(ClosedForm):
    """An all-to-all with one partner at a time."""

    def completion_s(self, kind: FabricKind, grid: Grid, size: float) -> float:
        """x(y-1)D/C_S + (x-1)D/C_F, with D bytes for each ordered pair."""
        pair = size / grid.n
        return _along_rails_s(grid, pair) + _within_domains_s(grid, pair)

    def steps(self, grid: Grid) -> int:
        """To each other GPU."""
        return grid.n - 1


def _along_rails_s(grid: Grid, pair: float) -> float:
    """Time for `pair` bytes from a GPU to each GPU of all other domains, by its NIC."""
    return grid.x * (grid.y - 1) * pair / grid.nic


def _within_domains_s(grid: Grid, each: float) -> float:
    """Time for `each` bytes from a GPU to each other GPU of its domain."""
    return (grid.x - 1) * each / grid.hb
