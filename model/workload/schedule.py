"""Schedules: transfers with dependencies that meet the demand of a collective.

A buffer is cut into chunks. A schedule says which GPU sends which chunks to which other GPU, and
after which transfers. It is proved when it is built (`model.workload.transfers.proof`), so a wrong
schedule cannot be built. The postcondition is apart from the algorithm, as in msccl-tools.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np

from model.arrays import Floats, Ints
from model.workload.transfers.collective import Collective, Demand
from model.workload.transfers.columns import Transfers
from model.workload.transfers.lanes import Lanes, Parts
from model.workload.transfers.proof import ScheduleError, check_dependencies, check_steps, prove


class Steps(Protocol):
    """Transfers and steps of compute of `gpus` ranks, numbered from 0 in order of dependency.

    The schedule of a collective, a training iteration, a request load, several jobs, or the replay
    of a trace.
    """

    @property
    def task(self) -> str:
        """The name of the work: of the collective, `iteration`, `inference`, `jobs` or `trace`."""

    @property
    def algorithm(self) -> str:
        """The name of the algorithm; of other work, of its configuration, trace or jobs."""

    @property
    def gpus(self) -> int:
        """The number of ranks."""

    @property
    def size_bytes(self) -> int:
        """The size of the work."""

    @property
    def transfers(self) -> Transfers:
        """The steps."""

    @property
    def digest(self) -> str:
        """Fingerprint of the contents."""

    def over(self, lanes: Lanes) -> "Steps":
        """Return the same work with its transfers spread over lanes."""


@dataclass(frozen=True, eq=False, kw_only=True)
class WorkSteps:
    """The steps of work that is no collective.

    Raises `ScheduleError` for steps that cannot be executed; a kind of work proves more, as soon as
    it is built.
    """

    task: str
    algorithm: str
    gpus: int
    size_bytes: int
    transfers: Transfers

    def __post_init__(self) -> None:
        check_steps(self.gpus, self.transfers)
        check_dependencies(self.transfers)

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the contents."""
        return self.transfers.fingerprint(self.task, self.algorithm, self.gpus)

    def over(self, lanes: Lanes) -> Self:
        """Return the same work with its transfers spread over lanes."""
        parts, transfers = lanes.spread_out(self.transfers)
        return replace(self, transfers=transfers, **self._of_parts(parts))

    def _of_parts(self, parts: Parts) -> dict[str, Any]:
        """Return the fields that say something about each step, for parts of the steps."""
        del parts
        return {}


@dataclass(frozen=True, eq=False, kw_only=True)
class RequestSteps(WorkSteps):
    """The steps of a request load: each request's arrival, and its transfers.

    The load is open: arrivals do not depend on the requests under way. An arrival is a step of
    compute at each GPU that sends for the request, from the start until the arrival. The request's
    latency is the time from its arrival until the last byte of its transfers has arrived.

    `arrival_ns` has the moment at which each request arrives, in emulated time from the start;
    `request` has the request of each step. Raises `ScheduleError` for a transfer that may begin
    before its request has arrived, and for a request without a transfer.
    """

    task: str = "inference"
    arrival_ns: Ints
    request: Ints

    def __post_init__(self) -> None:
        super().__post_init__()
        transfers, arrives = self.transfers, self.transfers.is_compute
        if not np.isin(np.arange(len(self.arrival_ns)), self.request[~arrives]).all():
            raise ScheduleError("a request has no transfer")
        right = transfers.compute_ns[arrives] == self.arrival_ns[self.request[arrives]]
        if not right.all() or (transfers.after.lengths[arrives] > 0).any():
            raise ScheduleError("a request does not arrive at its time")
        later, earlier = transfers.after.row, transfers.after.values
        own = arrives[earlier] & (self.request[later] == self.request[earlier])
        if (np.bincount(later[own], minlength=len(transfers))[~arrives] != 1).any():
            raise ScheduleError("a transfer does not wait for the arrival of its request")

    def _of_parts(self, parts: Parts) -> dict[str, Any]:
        return {"request": self.request[parts.whole]}

    def latencies_s(self, end_s: Floats) -> Floats:
        """Return the latency of each request in seconds, by the end of each step."""
        last_s = np.zeros(len(self.arrival_ns))
        np.maximum.at(last_s, self.request, end_s)
        return last_s - self.arrival_ns / 1e9


@dataclass(frozen=True, eq=False)
class Schedule:
    """The transfers of one collective over `gpus` ranks, numbered from 0 in order of dependency.

    `size_bytes` is the collective's size as nccl-tests count it: the buffer for AllReduce, the
    gathered buffer for AllGather, the whole input for ReduceScatter, all that a rank holds for
    all-to-all, the root's buffer for Broadcast, Reduce, Gather and Scatter, what a rank sends for
    Send/Recv. Every transfer carries whole chunks. Several communicators have a collective of this
    size each, among `members` ranks, 0 for all, `None` if they differ in it; `variant` names them,
    and the matrix of an all-to-all. Raises `ScheduleError` if the transfers do not meet the demand.
    """

    collective: Collective
    algorithm: str
    gpus: int
    size_bytes: int
    demand: Demand
    transfers: Transfers
    members: int | None = 0
    variant: str = ""

    @property
    def task(self) -> str:
        """The name of the collective."""
        return self.collective.value

    @property
    def chunks(self) -> int:
        """The number of chunks that have bytes, slices counted."""
        return int(np.count_nonzero(self.demand.chunk_bytes))

    def __post_init__(self) -> None:
        prove(self.gpus, self.demand, self.transfers)

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the schedule's contents."""
        names = self.collective, self.algorithm, self.gpus, self.demand.digest
        return self.transfers.fingerprint(*names)

    def over(self, lanes: Lanes) -> "Schedule":
        """Return the same collective over lanes, proved once more: chunks are cut into parts."""
        demand = lanes.cut_demand(self.demand)
        _, transfers = lanes.spread_out(self.transfers, demand.chunk_bytes)
        return replace(self, demand=demand, transfers=transfers)
