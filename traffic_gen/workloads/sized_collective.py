"""A collective of a size on a grid of GPUs, whose steps are built at a scale."""

from dataclasses import dataclass

from model.job.communicators import Asked, Shape
from model.transfers.collective import Collective
from model.transfers.columns import Transfers
from model.workload.schedule import Schedule
from traffic_gen.workloads.algorithms.collectives import (
    Named,
    build_schedule,
    build_transfers,
    variant,
)
from traffic_gen.workloads.algorithms.matrices import Matrix, largest_bytes


@dataclass(frozen=True)
class SizedCollective:
    """A collective on a grid of GPUs, with its real size."""

    collective: Collective
    algorithm: str
    shape: Shape
    size_bytes: float
    slices: int | None
    matrix: Matrix | None
    communicator: Asked

    @property
    def named(self) -> Named:
        """The collective and its algorithm."""
        return self.collective, self.algorithm

    @property
    def name(self) -> str:
        """The names of collective, algorithm, matrix and communicators."""
        return "/".join(filter(None, (*self.named, variant(self.matrix, self.communicator))))

    @property
    def largest_bytes(self) -> float:
        """The most real bytes that one transfer may have."""
        return largest_bytes(self.matrix, self.size_bytes)

    def steps(self, size_scale: float = 1.0, time_dilation: float = 1.0) -> Schedule:
        """Build and prove the schedule; a collective does not compute, so it has no seconds."""
        del time_dilation
        return build_schedule(*self._asked(size_scale))

    def transfers(self, size_scale: float = 1.0) -> Transfers:
        """Build the same transfers without proof."""
        return build_transfers(*self._asked(size_scale))

    def _asked(
        self, size_scale: float
    ) -> tuple[Collective, str, int, int, int, int | None, Matrix | None, Asked]:
        """All that the schedule depends on."""
        emulated_bytes = max(1, round(self.size_bytes / size_scale))
        among = self.slices, self.matrix, self.communicator
        return *self.named, *self.shape, emulated_bytes, *among
