"""The progress of an execution: which transfers may start, by the schedule's dependencies."""

from collections import defaultdict
from collections.abc import Sequence

from model.measurement.records import Repeat, TransferRecord
from model.workload.transfers.columns import Transfer


class Progress:
    """Which transfers have started and arrived, with their times of CLOCK_MONOTONIC in ns.

    A transfer may start once those that it is `after`, and the one that makes its receiver `ready`,
    have arrived. A generator that sees both ends needs no confirmations.
    """

    def __init__(self, transfers: Sequence[Transfer]) -> None:
        self._transfers = transfers
        self._missing = {transfer.id: len(_waits_for(transfer)) for transfer in transfers}
        self._waiting = defaultdict[int, list[Transfer]](list)
        for transfer in transfers:
            for earlier in _waits_for(transfer):
                self._waiting[earlier].append(transfer)
        self.started_ns = dict[int, int]()
        self.sent_ns = dict[int, int]()
        self.arrived_ns = dict[int, int]()

    @property
    def is_complete(self) -> bool:
        """Whether all transfers have arrived."""
        return len(self.arrived_ns) == len(self._transfers)

    def first(self) -> list[Transfer]:
        """Return the transfers without dependencies."""
        return [transfer for transfer in self._transfers if not _waits_for(transfer)]

    def arrived(self, transfer_id: int, now_ns: int) -> list[Transfer]:
        """Note an arrival; return the transfers that may start now."""
        self.arrived_ns[transfer_id] = now_ns
        waiting = self._waiting[transfer_id]
        for transfer in waiting:
            self._missing[transfer.id] -= 1
        return [transfer for transfer in waiting if not self._missing[transfer.id]]

    def repeat(self, number: int, start_ns: int) -> Repeat:
        """Return the execution so far, without the generator's counters."""
        moments_ns = (self.started_ns, self.sent_ns, self.arrived_ns)
        records = []
        for one in self._transfers:
            started, sent, arrived = (of_one.get(one.id, 0) for of_one in moments_ns)
            times = started, sent, arrived, arrived
            records.append(TransferRecord.of(one, number, start_ns, times))
        begun_ns = [self.started_ns.get(transfer.id, start_ns) for transfer in self.first()]
        return Repeat(
            number=number,
            complete=self.is_complete,
            completion_s=max((record.arrived_ns for record in records), default=0) / 1e9,
            start_skew_s=(max(begun_ns, default=start_ns) - start_ns) / 1e9,
            agents_cpu_s=0.0,
            retransmitted=(),
            errors=(),
            records=tuple(records),
            start_ns=start_ns,
        )


def _waits_for(transfer: Transfer) -> set[int]:
    ready = set() if transfer.ready is None else {transfer.ready}
    return {*transfer.after, *ready}
