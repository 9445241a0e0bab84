"""A collective of a size on a grid of GPUs: what it is asked for, and its steps at any scale."""

from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Literal

import numpy as np

from model.arrays import Ints
from model.fabric.job_grid import JobGrid, Shape, Slot
from model.fabric.shaping import wire_bytes
from model.fabric.spec import FabricKind, FabricSpec
from model.job.communicators import EVERYONE, Asked, Communicator, communicators, label
from model.prediction.closed_forms import Grid
from model.prediction.load import SLICES, Profile
from model.prediction.nccl_tuning import VERSION, estimates
from model.workload.schedule import Schedule
from model.workload.transfers.collective import Collective, Demand, demand_of
from model.workload.transfers.columns import Transfers
from model.workload.transfers.lanes import ELEMENT_BYTES
from model.workload.transfers.proof import ScheduleError
from traffic_gen.workloads.algorithms.all_to_all import Given, Matrix
from traffic_gen.workloads.algorithms.builder import Arrivals, Builder, LoadBuilder
from traffic_gen.workloads.algorithms.collectives import (
    NAMES_OF_NCCL,
    NCCL,
    Algorithm,
    Named,
    algorithm_of,
)
from traffic_gen.workloads.task import MOST_FOLLOWED_GPUS, Task, followed

Peers = int | Literal["all"]
# A share of a size that is a whole number of elements, up to rounding, is not one more.
ROUNDING = 6
# A smaller grid can stand in for these communicators: they have the same form on every grid.
REGULAR = (EVERYONE, "rails", "domains")

# A larger grid is represented by a smaller one, of at most this many domains, and GPUs in each.
LARGEST_DOMAINS, LARGEST_SIZE = 8, 8
Cut = tuple[Communicator, Ints]
"""A communicator, and the bytes of each chunk of its data."""


@dataclass(frozen=True)
class SizedCollective(Task):
    """A collective with an algorithm on a grid of GPUs, some perhaps `missing`; its real size.

    `size_bytes` is as nccl-tests define it. A pipelined algorithm sends each chunk in `slices`, by
    default as many as the algorithm says. An all-to-all may have a `matrix`, and exchange with
    several `peers` at once. The ranks of a `communicator` alone take part. `choice` says why
    NCCL's tuning model chose the algorithm, if it did.
    """

    collective: Collective
    algorithm: str
    shape: Shape
    size_bytes: float
    slices: int | None = None
    matrix: Matrix | None = None
    communicator: Asked = EVERYONE
    peers: Peers = 1
    choice: str = ""
    missing: tuple[Slot, ...] = ()
    gpus_per_nic: int = 1
    sharing: tuple[int, ...] = ()

    @property
    def collectives(self) -> tuple[Named, ...]:
        """The collective itself."""
        return ((self.collective, self.algorithm),)

    @property
    def name(self) -> str:
        """The names of collective, algorithm, several peers, matrix and communicators."""
        chosen = NCCL if self.choice else ""
        several = "" if self.peers == 1 else f"peers-{self.peers}"
        parts = self.collective, chosen, self.algorithm, several, self.variant
        return "/".join(filter(None, parts))

    @property
    def variant(self) -> str:
        """The names of the matrix and the communicators; empty for all pairs of all GPUs alike."""
        matrix = "" if self.matrix is None else self.matrix.name
        ranks = "" if self.communicator == EVERYONE else label(self.communicator)
        return "/".join(filter(None, (matrix, ranks)))

    @property
    def job_grid(self) -> JobGrid:
        """The GPUs of the job."""
        return JobGrid(*self.shape, self.missing, self.gpus_per_nic, self.sharing)

    @property
    def how(self) -> Algorithm:
        """The algorithm itself."""
        return algorithm_of((self.collective, self.algorithm))

    def chosen_by_nccl(self, spec: FabricSpec) -> "SizedCollective":
        """Return the same AllReduce by the algorithm that NCCL's tuning model chooses.

        For unequal domains, it chooses among those that serve them.
        """
        told = estimates(spec.platform, self.job_grid.sizes, self.size_bytes)
        named = {one: replace(self, algorithm=NAMES_OF_NCCL[one.algorithm]) for one in told}
        if self.missing:
            told = [one for one in told if named[one].is_accepted] or told
        best, *others = told
        before = " and ".join(map(str, others))
        why = f"NCCL {VERSION}'s tuning model chooses {best} before {before}"
        return replace(named[best], choice=why)

    def of_size(self, size_bytes: float, spec: FabricSpec) -> "SizedCollective":
        """Return the collective with another size, for which NCCL may choose differently."""
        sized = replace(self, size_bytes=size_bytes)
        return sized.chosen_by_nccl(spec) if self.choice else sized

    @property
    def is_modeled(self) -> bool:
        """Whether its algorithm has a closed form alone."""
        return self.how.is_modeled

    @property
    def chunk_slices(self) -> int:
        """The number of slices of each chunk."""
        return self.slices or self.how.slices

    @property
    def details(self) -> tuple[str, ...]:
        """The slices of a pipelined algorithm."""
        slices = f"{self.chunk_slices} slices of each chunk, which overlap in different steps"
        return (slices,) if self.chunk_slices > 1 else ()

    @property
    def peers_at_once(self) -> int:
        """The number of partners with which a GPU exchanges at once, at most.

        Exchanges have the distance of a slot, so missing GPUs count as partners.
        """
        return prod(self.shape) if isinstance(self.peers, str) else self.peers

    @property
    def phases(self) -> int:
        """The number of all-to-alls that follow one another."""
        return 1 if self.matrix is None else self.matrix.phases

    @property
    def groups(self) -> tuple[Communicator, ...]:
        """The communicators; raises `ValueError` if the grid does not have them."""
        return communicators(self.communicator, self.job_grid)

    @property
    def members(self) -> int | None:
        """The number of ranks of each communicator; `None` if they differ in it."""
        sizes = {len(group.ranks) for group in self.groups}
        return sizes.pop() if len(sizes) == 1 else None

    @property
    def is_regular(self) -> bool:
        """Whether a closed form and a smaller grid describe it."""
        return self.matrix is None and not self.missing and self.communicator in REGULAR

    def _is_regular_on(self, spec: FabricSpec) -> bool:
        """Whether this holds on a fabric; not on a custom one that is small enough to follow."""
        is_custom = bool(spec.nic.links) and spec.gpus <= MOST_FOLLOWED_GPUS
        return self.is_regular and spec.has_whole_nics and not is_custom

    @property
    def largest_bytes(self) -> float:
        """Bound of the real bytes of one transfer: the whole size, whatever the algorithm cuts.

        With a matrix, all that one GPU sends, or receives.
        """
        if self.matrix is None:
            return self.size_bytes
        shares = [self.matrix.shares(group.grid) for group in self.groups]
        most = max(float(one.sum(axis=axis).max()) for one in shares for axis in (0, 1))
        return self.size_bytes * most

    def emulated_bytes(self, size_scale: float = 1.0) -> int:
        """Return the size at a scale, rounded up to whole slices of whole elements."""
        group, size_bytes = self.groups[0], self.scaled_bytes(size_scale)
        if self.matrix is None:
            return prod(self._equal_chunks(group, size_bytes))
        return int(self._chunk_bytes(group, size_bytes).sum()) // self._owners(group)

    def steps(self, size_scale: float = 1.0, time_dilation: float = 1.0) -> Schedule:
        """Build and prove the schedule; a collective does not compute, so it has no seconds."""
        transfers, cuts = self.transfers(size_scale), self._cuts(size_scale)
        size_bytes, members = self.emulated_bytes(size_scale), self.members
        demands = [demand_of(self.collective, len(group.ranks), sizes) for group, sizes in cuts]
        return Schedule(
            collective=self.collective,
            algorithm=self.algorithm,
            gpus=self.job_grid.gpus,
            size_bytes=size_bytes,
            demand=Demand.joined(demands, [np.array(group.ranks) for group, _ in cuts]),
            transfers=transfers,
            members=members,
            variant=self.variant,
        )

    def transfers(self, size_scale: float = 1.0, time_dilation: float = 1.0) -> Transfers:
        """Build the same transfers without a proof; those of each communicator are independent.

        Raises `ScheduleError` if the algorithm refuses the grid, or sends nothing.
        """
        del time_dilation
        return self._built(Builder, size_scale)

    def loads(self) -> Transfers:
        """Build transfers of the same ranks and sizes that wait for nothing, much faster."""
        return self._built(LoadBuilder)

    def _built(self, kind: type[Builder], size_scale: float = 1.0) -> Transfers:
        parts, first, first_chunk = list[Transfers](), 0, 0
        counts = self.chunk_slices, self.phases, self.peers_at_once
        for group, chunk_bytes in self._cuts(size_scale):
            builder = kind(group.grid, chunk_bytes, *counts)
            self.how.build(builder)
            ranks, sent = np.array(group.ranks), builder.transfers
            moved = first or (ranks != builder.ranks).any()
            parts.append(sent.placed(ranks, first, first_chunk) if moved else sent)
            first += len(sent)
            first_chunk += len(chunk_bytes)
        if not first:
            raise ScheduleError("no GPU sends to another GPU")
        return Transfers.joined(parts)

    def require_accepted(self) -> None:
        """Raise `ScheduleError` if the algorithm refuses the grid; cheap for a grid of any size."""
        nothing = np.empty(0, np.int64)
        for grid in dict.fromkeys(group.grid for group in self.groups):
            with suppress(_Begun):
                self.how.build(_Trial(grid, nothing))

    @property
    def is_accepted(self) -> bool:
        """Whether the algorithm accepts the grid."""
        try:
            self.require_accepted()
        except ScheduleError:
            return False
        return True

    @property
    def on_own_nics(self) -> "SizedCollective":
        """The same collective of GPUs that share no NICs."""
        return replace(self, gpus_per_nic=1, sharing=())

    def whole(self, spec: FabricSpec) -> tuple[Task, FabricSpec]:
        """Return the same collective on a fabric that lacks nothing, if it is of all GPUs."""
        task, equipped = super().whole(spec)
        if self.communicator != EVERYONE:
            return task, equipped
        return replace(self.on_own_nics, missing=()), replace(equipped, missing=())

    def slowdown(self, spec: FabricSpec, whole: Task, equipped: FabricSpec) -> float | None:
        """Return the time over that of the whole work, if that is known."""
        if equipped.missing != spec.missing and isinstance(self.matrix, Given):
            return None  # the matrix has no rows for missing GPUs
        return super().slowdown(spec, whole, equipped)

    def estimate(self, spec: FabricSpec) -> Profile:
        """Scale the profile of a smaller grid to the time and transfers of the whole one."""
        if not self._is_regular_on(spec):
            return followed(self, spec).profile
        small = self.stand_in()
        smaller = _smaller(spec, small.shape)
        small_profile = followed(small, smaller).profile
        if (small, smaller) == (self, spec):
            return small_profile
        stretch = self.full_s(spec) / small.full_s(smaller)
        # GPUs of both have the same bytes/s.
        more = stretch * spec.gpus / smaller.gpus
        form, grid = self.how.closed_form, self.grid(spec)
        sizes = small_profile.size_bytes.items()
        return replace(
            small_profile,
            completion_s=small_profile.completion_s * stretch,
            size_bytes={key: tuple(part * more for part in parts) for key, parts in sizes},
            transfers=(len(self.groups) * form.transfers(grid) / SLICES,) * SLICES,
            steps=form.steps(grid),
        )

    def full_s(self, spec: FabricSpec) -> float:
        """Return the bandwidth term of the completion time, without headers."""
        if not self._is_regular_on(spec):
            return followed(self, spec).profile.completion_s / wire_bytes(1)
        form = self.how.closed_form
        return form.completion_s(spec.routed_as, self.grid(spec), self.scaled_bytes())

    def crossing(self, pairs: Ints, grid: JobGrid) -> str:
        """Say which communicator no algorithm can serve along rails; else as of any work."""
        apart = sum(not group.is_rail_isolated(grid) for group in self.groups)
        if not apart:
            return super().crossing(pairs, grid)
        several = f" {apart} times" if len(self.groups) > 1 else ""
        why = "rails and HB domains do not connect its GPUs, other GPUs forward for them"
        return f"communicator {label(self.communicator)} crosses rails{several}: {why}"

    def stand_in(self) -> "SizedCollective":
        """Return the collective on a smaller grid: the first that it accepts, most domains first.

        The limits above and its own grid bound the search; a single domain stands only for one.
        Raises `ScheduleError` if no grid is accepted.
        """
        domains, size = min(self.shape[0], LARGEST_DOMAINS), min(self.shape[1], LARGEST_SIZE)
        for shape in product(range(domains, min(domains, 2) - 1, -1), range(size, 0, -1)):
            smaller = replace(self, shape=shape)
            with suppress(ScheduleError, ValueError):
                smaller.require_accepted()
                return smaller
        small = f"{domains} x {size} GPUs"
        raise ScheduleError(f"the algorithm accepts no grid of up to {small} to prove instead")

    def refusal(self, error: ScheduleError) -> tuple[str, str]:
        """Say that the schedule is wrong, and where the algorithm's function is."""
        code = getattr(self.how.build, "__code__", None)
        place = "" if code is None else f", {code.co_name} in {code.co_filename}"
        return f"{self.on_grid} has a wrong schedule: {error}", f"fix its function{place}"

    @property
    def on_grid(self) -> str:
        """The collective, its algorithm and its grid, in words."""
        return f"{self.collective} with the algorithm {self.algorithm!r} on {self.job_grid}"

    def grid(self, spec: FabricSpec) -> Grid:
        """Return the grid of a communicator's GPUs, with their bandwidths in bytes/s."""
        domains, size = self.groups[0].grid.shape
        rates = spec.hb.rate_bps / 8, spec.nic.rate_bps / 8
        return Grid(size, domains, *rates, self.chunk_slices, peers=self.peers_at_once)

    def _owners(self, group: Communicator) -> int:
        """Return how many ranks have data of their own, each of the size of the collective."""
        own = self.collective in (Collective.ALL_TO_ALL, Collective.SEND_RECV)
        return len(group.ranks) if own else 1

    def _cuts(self, size_scale: float) -> list[Cut]:
        size_bytes = self.scaled_bytes(size_scale)
        return [(group, self._chunk_bytes(group, size_bytes)) for group in self.groups]

    def _chunk_bytes(self, group: Communicator, size_bytes: int) -> Ints:
        """Cut the data of a communicator into chunks of whole elements."""
        slices = self.chunk_slices
        if self.matrix is not None:
            shares = self.matrix.shares(group.grid) * (size_bytes / (ELEMENT_BYTES * slices))
            elements = np.maximum(np.ceil(shares.round(ROUNDING)), shares > 0).astype(np.int64)
            return np.repeat(elements.ravel(), slices) * ELEMENT_BYTES
        count, each = self._equal_chunks(group, size_bytes)
        return np.full(count * self._owners(group), each)

    def _equal_chunks(self, group: Communicator, size_bytes: int) -> tuple[int, int]:
        """Return the number of chunks of a rank's data, and the bytes of each: whole elements."""
        count = self.how.shards(group.grid) * self.chunk_slices
        return count, -(-size_bytes // (count * ELEMENT_BYTES)) * ELEMENT_BYTES


def _smaller(spec: FabricSpec, shape: Shape) -> FabricSpec:
    """Return a fabric of the same kind for a grid small enough to follow each transfer.

    A custom fabric, which has no smaller one, is taken for a rail-optimized one.
    """
    domains, domain_size = shape[0] + spec.spares.domains, shape[1] + spec.spares.gpus
    if spec.nic.links:
        whole = replace(spec.nic, links=(), spines=spec.domains)
        spec = replace(spec, kind=FabricKind.RAIL_OPTIMIZED, nic=whole)
    spines = max(1, round(spec.nic.spines * domains / spec.domains))
    return replace(
        spec,
        domains=domains,
        domain_size=domain_size,
        hb=replace(spec.hb, leaves=min(spec.hb.leaves, domain_size)),
        nic=replace(spec.nic, spines=spines, leaves=min(spec.nic.leaves, domains)),
    )


class _Begun(Exception):
    """An algorithm sends, so it has accepted the grid."""


class _Trial(Builder):
    """A builder that ends at the first transfer, before its chunks are numbered."""

    @property
    def nic_ranks(self) -> Ints:
        """One row of those of all NICs: their rings would take memory for each with all ranks."""
        return super().nic_ranks[:1]

    def send(self, *_: object, **__: object) -> Arrivals:
        """End the trial."""
        raise _Begun
