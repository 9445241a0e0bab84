"""Algorithms in closed form: the textbook's and the rail-only paper's bandwidth terms.

`x` GPUs in each of `y` HB domains, `hb` and `nic` the bandwidths C_F and C_S of a GPU in bytes/s,
`size` the collective's size in bytes as nccl-tests count it. Seconds; no headers. Each step costs
the latency of its path once, if the grid has latencies.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from model.fabric.spec import FabricKind
from model.workload.double_tree import rounds


@dataclass(frozen=True)
class Grid:
    """The grid of GPUs, its two bandwidths, and the slices of a pipelined algorithm.

    `hb_s` and `nic_s` are the latencies of a path within a domain and along a rail, in seconds.
    """

    x: int
    y: int
    hb: float
    nic: float
    slices: int = 1
    hb_s: float = 0.0
    nic_s: float = 0.0

    @property
    def n(self) -> int:
        """The number of GPUs."""
        return self.x * self.y

    def within_s(self, steps: int, each: float) -> float:
        """Time of steps within a domain, of `each` bytes."""
        return steps * (each / self.hb + self.hb_s)

    def along_s(self, steps: int, each: float) -> float:
        """Time of steps along a rail, of `each` bytes."""
        return steps * (each / self.nic + self.nic_s)

    def slowest_s(self, steps: int, each: float) -> float:
        """Time of steps from domain to domain, or within the only domain."""
        return (self.along_s if self.y > 1 else self.within_s)(steps, each)


class ClosedForm(ABC):
    """Time, steps and transfers of an algorithm on any grid of GPUs."""

    @abstractmethod
    def completion_s(self, kind: FabricKind, grid: Grid, size: float) -> float:
        """The completion time on a kind of fabric."""

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
        return grid.slowest_s(grid.n - 1, size / grid.n)

    def steps(self, grid: Grid) -> int:
        """Each shard travels to all other GPUs."""
        return grid.n - 1


class Hierarchical(ClosedForm):
    """A hierarchical AllGather or ReduceScatter."""

    def completion_s(self, kind: FabricKind, grid: Grid, size: float) -> float:
        """(y-1)D/(xy C_S) + (x-1)D/(x C_F) (section III-B)."""
        along_rails = grid.along_s(grid.y - 1, size / grid.n)
        return along_rails + grid.within_s(grid.x - 1, size / grid.x)

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
        along_rails = grid.along_s(grid.y - 1, grid.x * pair)
        return along_rails + grid.within_s(grid.x - 1, grid.y * pair)

    def steps(self, grid: Grid) -> int:
        """To the other GPUs of the domain, then to those of the rail."""
        return grid.x - 1 + grid.y - 1


class HalvingDoubling(Hierarchical):
    """Half of an AllReduce by halving and doubling: the bytes of the hierarchical algorithm."""

    def completion_s(self, kind: FabricKind, grid: Grid, size: float) -> float:
        """(y-1)D/(xy C_S) + (x-1)D/(x C_F), in a step for each bit of the rank."""
        bare = replace(grid, hb_s=0.0, nic_s=0.0)
        across, inside = (count.bit_length() - 1 for count in (grid.y, grid.x))
        latency_s = across * grid.nic_s + inside * grid.hb_s
        return latency_s + super().completion_s(kind, bare, size)

    def steps(self, grid: Grid) -> int:
        """One for each bit of the rank."""
        return grid.n.bit_length() - 1


class DoubleTree(ClosedForm):
    """An AllReduce within the domains, and along each rail by a double binary tree in slices."""

    def completion_s(self, kind: FabricKind, grid: Grid, size: float) -> float:
        """2(x-1)D/(x C_F), and D/(xk C_S) for each of the trees' rounds, of k slices."""
        count = len(rounds(grid.y, grid.slices))
        along_rails = grid.along_s(count, size / (grid.x * grid.slices))
        return along_rails + grid.within_s(2 * (grid.x - 1), size / grid.x)

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
        slice_ = size / grid.n / grid.slices
        along_rails = grid.along_s(grid.y - 1, grid.x * slice_)
        steps = along_rails, grid.within_s(grid.x - 1, grid.y * slice_)
        return grid.slices * max(steps) + min(steps)

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
        first = grid.along_s(grid.y - 1, chunk) + grid.within_s(grid.y * (grid.x - 1), chunk)
        return first + grid.slowest_s(count - 1, chunk)

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
        along_rails = grid.along_s(2 * (grid.y - 1), size / grid.n)
        return along_rails + grid.within_s(2 * (grid.x - 1), size / grid.x)

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
        along_rails = grid.along_s(grid.x * (grid.y - 1), pair)
        return max(along_rails, grid.within_s(grid.x - 1, carried))

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
        along_rails = grid.along_s(grid.x * (grid.y - 1), pair)
        return along_rails + grid.within_s(grid.x - 1, pair)

    def steps(self, grid: Grid) -> int:
        """To each other GPU."""
        return grid.n - 1
