"""The steps of a request load: each request's arrival, and its transfers.

The load is open: arrivals do not depend on the requests under way. An arrival is a step of compute
at each GPU that sends for the request, from the start until the arrival. The request's latency is
the time from its arrival until the last byte of its transfers has arrived.
"""

from dataclasses import dataclass

import numpy as np

from model.arrays import Floats, Ints
from model.workload.schedule import WorkSteps
from model.workload.transfers.proof import ScheduleError


@dataclass(frozen=True, eq=False, kw_only=True)
class RequestSteps(WorkSteps):
    """The steps of a request load.

    `arrival_ns` has the moment at which each request arrives, in emulated time from the start;
    `request` has the request of each step. Raises `ScheduleError` for a transfer that may begin
    before its request has arrived, and for a request without a transfer.
    """

    task: str = "inference"
    arrival_ns: Ints
    request: Ints

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_arrivals()

    def latencies_s(self, end_s: Floats) -> Floats:
        """Return the latency of each request in seconds, by the end of each step."""
        last_s = np.zeros(len(self.arrival_ns))
        np.maximum.at(last_s, self.request, end_s)
        return last_s - self.arrival_ns / 1e9

    def _check_arrivals(self) -> None:
        """Show that requests arrive at their times, and that their transfers wait for that."""
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
