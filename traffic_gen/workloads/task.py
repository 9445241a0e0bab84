"""The work of a case or a job: what every kind of work can be asked."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from model.arrays import Ints, distinct
from model.fabric.build import build_topology
from model.fabric.job_grid import JobGrid
from model.fabric.shaping import SEGMENT_PACKETS
from model.fabric.spec import FabricSpec
from model.prediction.fluid import arrivals_s, lower_bound_s
from model.prediction.load import Profile, profile
from model.prediction.network import Terms, healthy_network
from model.prediction.simulation import Processors
from model.workload.schedule import Steps
from model.workload.transfers.columns import NONE, Transfers
from model.workload.transfers.lanes import spread
from model.workload.transfers.proof import ScheduleError
from traffic_gen.workloads.algorithms.collectives import Named

# For more GPUs, proving and predicting a schedule takes too long for `check` and `plan`.
EXACT_UP_TO_GPUS = 32
# For more GPUs, following each transfer takes too long, too.
MOST_FOLLOWED_GPUS = 256
# Of contended traffic, flows that share no link would overestimate the load; simulation is slower.
MOST_SIMULATED = 2000
BANDWIDTH_ALONE = Terms(
    bursts=False, last_segment=False, acknowledgements=False, probes=False, confirmations=False
)


class Task(ABC):
    """Work on a grid of GPUs, in its real size; fabrics have real rates.

    A kind says its names, its sizes and its steps; all else follows, unless the kind knows better.
    """

    key: ClassVar[str]

    if TYPE_CHECKING:  # Fields of some kinds, which a property of this class would hide.

        @property
        @abstractmethod
        def algorithm(self) -> str:
            """The name of the algorithm; of other work, of its configuration, trace or jobs."""

        @property
        @abstractmethod
        def size_bytes(self) -> float:
            """The real size."""

    @property
    def name(self) -> str:
        """The kind of work, and what distinguishes it: `trace/layers.txt`."""
        return f"{self.key}/{self.algorithm}"

    @property
    def is_modeled(self) -> bool:
        """Whether it has no transfers, and cannot be executed."""
        return False

    @property
    @abstractmethod
    def largest_bytes(self) -> float:
        """The most real bytes that one transfer may have."""

    def scaled_bytes(self, size_scale: float = 1.0) -> int:
        """Return the size at a scale: whole bytes, at least 1."""
        return max(1, round(self.size_bytes / size_scale))

    def emulated_bytes(self, size_scale: float = 1.0) -> int:
        """Return the size at a scale as its steps have it, if that is known without them."""
        return self.scaled_bytes(size_scale)

    @abstractmethod
    def steps(self, size_scale: float = 1.0, time_dilation: float = 1.0) -> Steps:
        """Build and prove the steps, with bytes and seconds scaled; may raise `ScheduleError`."""

    @property
    def size_name(self) -> str:
        """The size in words, for the names of cases that differ in it."""
        return f"{self.size_bytes:.15g} B"

    @property
    def origin(self) -> str:
        """The file that the work was read from, as `check` describes it; empty without one."""
        return ""

    @property
    def details(self) -> tuple[str, ...]:
        """The lines in which `check` describes the work."""
        return self.left_out

    @property
    def left_out(self) -> tuple[str, ...]:
        """What the file says that the work was read from, and the work has not."""
        return ()

    @property
    def choice(self) -> str:
        """Why NCCL's tuning model chose the algorithm; empty if it did not."""
        return ""

    @property
    def collectives(self) -> tuple[Named, ...]:
        """The collectives of the scenario that it executes, each with its algorithm."""
        return ()

    @property
    def alone(self) -> tuple["Task", ...]:
        """The parts that are also executed alone, to compare with."""
        return ()

    def transfers(self, size_scale: float = 1.0, time_dilation: float = 1.0) -> Transfers:
        """Build the transfers of the steps; without a proof, if that is cheaper."""
        return self.steps(size_scale, time_dilation).transfers

    def estimate(self, spec: FabricSpec) -> Profile:
        """Profile the load on a fabric: as if no flows shared a link, unless they contend."""
        return followed(self, spec).profile

    def full_s(self, spec: FabricSpec) -> float:
        """Return a lower bound of the completion time, by each rank and each link."""
        return followed(self, spec).profile.completion_s

    def price(self, spec: FabricSpec) -> str:
        """Say how much longer GPUs need that are fewer in a domain, or share NICs (PXN)."""
        # As that of the estimate, which is cached: no time here depends on it.
        spec = replace(spec, grain_packets=SEGMENT_PACKETS)
        (whole, equipped), grid, told = self.whole(spec), spec.job_grid, list[str]()
        # A custom fabric has no links for what it lacks.
        is_known = equipped != spec and not spec.nic.links
        if is_known and (longer := self.slowdown(spec, whole, equipped)) is not None:
            each = " with a NIC each" if grid.gpus_per_nic > 1 else ""
            times = f"{longer:.3g} times ".removeprefix("1 times ")
            told.append(f"{times}as long as on {equipped.job_grid}{each}")
        if equipped.missing != spec.missing:
            rails = grid.size // grid.gpus_per_nic
            told.append(f"{len(grid.shared_rails)} of {rails} rails are in all of them")
        if grid.gpus_per_nic > 1 and spec.gpus <= MOST_FOLLOWED_GPUS:
            share = _share_by_peers(self.pairs(spec), grid)
            told.append(f"{share:.0%} of pairs use a peer's NIC, over HB links (PXN)")
        return f"{grid}: {'; '.join(told)}" if told else ""

    @property
    def on_own_nics(self) -> "Task":
        """The same work of GPUs that share no NICs."""
        return self

    def whole(self, spec: FabricSpec) -> tuple["Task", FabricSpec]:
        """Return the same work on a fabric that lacks nothing, and that fabric."""
        if spec.nics >= spec.domain_size:
            return self, spec
        return self.on_own_nics, replace(spec, nic=replace(spec.nic, per_domain=None))

    def slowdown(self, spec: FabricSpec, whole: "Task", equipped: FabricSpec) -> float | None:
        """Return the time over that of the whole work, if both can be followed."""
        if equipped.gpus > MOST_FOLLOWED_GPUS:
            return None
        times = followed(self, spec).profile, followed(whole, equipped).profile
        return times[0].completion_s / times[1].completion_s

    def crossings(self, spec: FabricSpec) -> Iterator[str]:
        """Yield how the work crosses rails."""
        if sentence := self.crossing(self.pairs(spec), spec.job_grid):
            yield sentence

    def pairs(self, spec: FabricSpec) -> Ints:
        """Return a column for each pair of ranks that sends; none for too many GPUs to follow."""
        if spec.gpus > MOST_FOLLOWED_GPUS:
            return np.empty((2, 0), np.int64)
        return followed(self, spec).pairs

    def crossing(self, pairs: Ints, grid: JobGrid) -> str:
        """Say how many pairs share neither domain nor rail; empty if all share one."""
        (domains, others), (rails, other_rails) = grid.nics[:, pairs]
        crossed = int(((domains != others) & (rails != other_rails)).sum())
        if not crossed:
            return ""
        of_all = f"{crossed} of {pairs.shape[1]} sending pairs of GPUs"
        share = "shares" if crossed == 1 else "share"
        return f"{of_all} {share} neither rail nor HB domain: other GPUs forward for them"

    def refusal(self, error: ScheduleError) -> tuple[str, str]:
        """Say why the steps cannot be executed, and a hint."""
        return f"cannot be executed: {error}", ""


class Followed(NamedTuple):
    """A profile, and a column for each pair of ranks that sends."""

    profile: Profile
    pairs: Ints


# Cached: the estimate and the pairs of a task are asked apart.
@lru_cache(maxsize=16)
def followed(task: Task, spec: FabricSpec) -> Followed:
    """Follow each step of a task."""
    topology = build_topology(spec)
    sent = spread(task.transfers(), spec)
    pair, net = healthy_network(sent, topology)
    profiled = profile(sent, pair, net, topology)
    takes_turns = (sent.processor != NONE).any()
    if (profiled.is_contended or takes_turns) and len(sent) <= MOST_SIMULATED:
        at_once = dict.fromkeys(net.classes, 0.0)
        arrival_s = arrivals_s(sent, pair, [net], at_once, BANDWIDTH_ALONE)
        profiled = profile(sent, pair, net, topology, arrival_s)
    # As if no flows shared a link, and no steps a processor, those may need longer.
    shared_s = lower_bound_s(sent, pair, net), Processors(sent).least_s
    least_s = max(profiled.completion_s, *shared_s)
    codes = distinct((sent.source * spec.gpus + sent.destination)[~sent.is_compute])
    return Followed(replace(profiled, completion_s=least_s), np.stack(np.divmod(codes, spec.gpus)))


def _share_by_peers(pairs: Ints, grid: JobGrid) -> float:
    """Return the share of the pairs between domains of which a GPU has no link of its own."""
    crosses = np.not_equal(*grid.places[0, pairs])
    shares = np.array([holder != slot for slot, holder in grid.holders.items()])
    return float((crosses & shares[pairs].any(axis=0)).sum() / max(1, crosses.sum()))
