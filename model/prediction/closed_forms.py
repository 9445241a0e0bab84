"""Completion times in closed form: the textbook's and the rail-only paper's bandwidth terms.

`x` GPUs in each of `y` HB domains, `hb` and `nic` the bandwidths C_F and C_S of a GPU in bytes/s,
`size` the collective's size in bytes as nccl-tests count it. Seconds; no latency, no headers.
"""

from dataclasses import dataclass

from model.fabric.spec import FabricKind
from model.workload.schedule import Collective


@dataclass(frozen=True)
class Grid:
    """The grid of GPUs and its two bandwidths."""

    x: int
    y: int
    hb: float
    nic: float

    @property
    def n(self) -> int:
        """The number of GPUs."""
        return self.x * self.y


def completion_s(
    collective: Collective, algorithm: str, kind: FabricKind, grid: Grid, size: float
) -> float:
    """The bandwidth term of a collective with an algorithm on a kind of fabric."""
    if collective is Collective.ALL_TO_ALL:
        return all_to_all_s(algorithm, kind, grid, size / grid.n)
    once = ring_s(grid, size) if algorithm == "ring" else hierarchical_s(grid, size)
    return 2 * once if collective is Collective.ALL_REDUCE else once


def ring_s(grid: Grid, size: float) -> float:
    """Ring AllGather or ReduceScatter over all GPUs: (n-1)/n · D/C_S (textbook).

    The ring crosses from domain to domain, so its slowest edge is a NIC.
    """
    slowest = grid.nic if grid.y > 1 else grid.hb
    return (grid.n - 1) / grid.n * size / slowest


def hierarchical_s(grid: Grid, size: float) -> float:
    """Hierarchical AllGather or ReduceScatter: (y-1)D/(xy C_S) + (x-1)D/(x C_F) (section III-B)."""
    along_rails = (grid.y - 1) * size / (grid.n * grid.nic)
    return along_rails + (grid.x - 1) * size / (grid.x * grid.hb)


def all_to_all_s(algorithm: str, kind: FabricKind, grid: Grid, pair: float) -> float:
    """All-to-all with `pair` bytes for each ordered pair (section IV-B).

    Two steps, one after the other: x(y-1)D/C_S + y(x-1)D/C_F. Direct: the longer of both, where
    the HB links of a rail-only fabric also carry what is forwarded, y(x-1) instead of x-1.
    """
    nic = grid.x * (grid.y - 1) * pair / grid.nic
    forwarded = grid.y * (grid.x - 1) * pair / grid.hb
    if algorithm == "two-step":
        return nic + forwarded
    own = (grid.x - 1) * pair / grid.hb
    return max(nic, forwarded if kind is FabricKind.RAIL_ONLY else own)


def two_step_slowdown(grid: Grid) -> float:
    """Slowdown of rail-only over rail-optimized: [y(x-1)]/[x(y-1)] · C_S/C_F, about C_S/C_F."""
    return grid.y * (grid.x - 1) / (grid.x * (grid.y - 1)) * grid.nic / grid.hb


def steps(collective: Collective, algorithm: str, grid: Grid) -> int:
    """The number of transfers that run one after the other."""
    if collective is Collective.ALL_TO_ALL and algorithm == "direct":
        return max(grid.x * (grid.y - 1), grid.x - 1)
    once = grid.n - 1 if algorithm == "ring" else grid.x - 1 + grid.y - 1
    return 2 * once if collective is Collective.ALL_REDUCE else once


def transfers(collective: Collective, algorithm: str, grid: Grid) -> int:
    """How many transfers there are: every GPU sends one in each step."""
    if collective is Collective.ALL_TO_ALL and algorithm == "direct":
        return grid.n * (grid.n - 1)
    return grid.n * steps(collective, algorithm, grid)
