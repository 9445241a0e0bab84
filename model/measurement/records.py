"""Raw records of transfers, links, faults and probes; the repeats that transfers belong to."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from model.fabric.topology import Hop
from model.faults import Fault

if TYPE_CHECKING:
    from model.workload.transfers.columns import Transfer


Moments = tuple[int, int, int, int]
"""When a transfer started, was sent, arrived and was confirmed."""


@dataclass(frozen=True)
class TransferRecord:
    """One transfer in one repeat; times in ns since the repeat's start, 0 if never reached."""

    repeat: int
    transfer: int
    source: int
    destination: int
    size_bytes: int
    started_ns: int
    sent_ns: int
    arrived_ns: int
    confirmed_ns: int
    lane: int = 0

    @classmethod
    def of(
        cls, transfer: "Transfer", repeat: int, start_ns: int, moments_ns: Moments
    ) -> "TransferRecord":
        """Build from moments of CLOCK_MONOTONIC, 0 if never reached; `start_ns` is the start."""
        started, sent, arrived, confirmed = (
            max(0, moment - start_ns) if moment else 0 for moment in moments_ns
        )
        ends, times = (transfer.source, transfer.destination), (started, sent, arrived, confirmed)
        return cls(repeat, transfer.id, *ends, transfer.size_bytes, *times, transfer.lane)


@dataclass(frozen=True)
class QueuePairSample:
    """A queue pair of RoCE at a moment, in ns since the repeat's start.

    Bytes of frames, notifications of congestion and repeated packets count from the opening of the
    queue pair. `rate_bps` is the most that its congestion control allows, if it has a rate,
    `window` its most packets under way, `alpha` DCQCN's.
    """

    repeat: int
    source: int
    destination: int
    lane: int
    queue_pair: int
    ns: int
    sent_bytes: int
    notifications: int
    repeated: int
    rate_bps: float | None
    window: float
    alpha: float | None


@dataclass(frozen=True)
class Repeat:
    """One execution of a schedule.

    `completion_s` counts until the last byte has arrived, or until the execution was given up.
    `start_ns` is the common start, of CLOCK_MONOTONIC. `sent_bytes` and `received_bytes` are the
    payload that each rank counted, 0 for a rank that did not answer; `retransmitted` has the
    number of TCP retransmits of each rank, `out_of_order` its number of packets that arrived
    before an earlier one. `waited_s` is how long each rank's agent waited for a core while it had
    work; empty if others send. `errors` say which results are wrong, or why it is incomplete, if
    known. `notes` name what a generator has checked, beside the bytes.
    """

    number: int
    complete: bool
    completion_s: float
    start_skew_s: float
    agents_cpu_s: float
    retransmitted: tuple[int, ...]
    errors: tuple[str, ...]
    records: tuple[TransferRecord, ...]
    start_ns: int = 0
    sent_bytes: tuple[int, ...] = ()
    received_bytes: tuple[int, ...] = ()
    out_of_order: tuple[int, ...] = ()
    waited_s: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    queue_pairs: tuple[QueuePairSample, ...] = ()

    @property
    def retransmits(self) -> int:
        """The segments that TCP and the packets that RoCE retransmitted, of all ranks."""
        return sum(self.retransmitted)

    @property
    def end_ns(self) -> int:
        """The moment of CLOCK_MONOTONIC at which it ended."""
        return self.start_ns + round(self.completion_s * 1e9)


@dataclass(frozen=True)
class CaseExecutions:
    """The executions of a case.

    `repeats` are those that count, `disturbed` those that the machine disturbed, whether they count
    or not.
    """

    repeats: tuple[Repeat, ...]
    warmups: tuple[Repeat, ...] = ()
    disturbed: tuple[Repeat, ...] = ()

    @property
    def set_aside(self) -> tuple[Repeat, ...]:
        """Executions that were disturbed and do not count."""
        return tuple(repeat for repeat in self.disturbed if repeat not in self.repeats)

    @property
    def disturbed_counted(self) -> bool:
        """Whether disturbed executions count: too few others were left."""
        return bool(self.disturbed) and not self.set_aside

    @property
    def all(self) -> tuple[Repeat, ...]:
        """All executions, warm-ups first."""
        return self.warmups + self.repeats + self.set_aside

    @property
    def retransmits(self) -> int:
        """The segments and packets that were retransmitted in the executions that count."""
        return sum(repeat.retransmits for repeat in self.repeats)


@dataclass(frozen=True)
class FaultRecord:
    """The actual begin and end of a fault, in nanoseconds of CLOCK_MONOTONIC."""

    fault: Fault
    begun_ns: int
    ended_ns: int | None


@dataclass(frozen=True)
class LinkSample:
    """Bytes that a link had carried since its creation at a moment of CLOCK_MONOTONIC.

    Counted at the link's upper end: `sent_bytes` went down, towards the GPU, `received_bytes` up.
    """

    link: str
    ns: int
    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True)
class QueueSample:
    """The queue of a switch's port at a moment of CLOCK_MONOTONIC; packets count from its creation.

    `receiver` is the node that the port leads to.
    """

    link: str
    receiver: str
    ns: int
    backlog_bytes: int
    dropped_packets: int
    marked_packets: int


@dataclass(frozen=True)
class ProbePath:
    """The hops of a probe, in order, and whether it arrived."""

    hops: tuple[Hop, ...]
    arrived: bool
