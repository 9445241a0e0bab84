"""Evaluate a prober's records: how long pairs were unreachable, which probes arrived, and when.

All times are nanoseconds of CLOCK_MONOTONIC, as in the journal of the controller.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

# An interval that contains all probes.
ALWAYS_NS = (0, 1 << 62)
# A probe's last link may count it this long after its timestamp: the kernel takes the timestamp
# first, and the prober converts it from another clock.
COUNTED_WITHIN_NS = 1_000_000


@dataclass(frozen=True)
class PairRecord:
    """The probes of one ordered pair. A probe's number is its index in `sent_ns`.

    `arrived_ns` maps the numbers of the probes that arrived, in any order, to their arrival times.
    The prober waits for probes in flight when it stops: probes not listed here are lost.
    """

    name: str
    sent_ns: tuple[int, ...]
    arrived_ns: Mapping[int, int]


@dataclass(frozen=True)
class Blackout:
    """A maximal sequence of `lost` consecutive probes of a pair that were all lost.

    `begin_ns` is when the first of them was sent, `end_ns` when the probe sent after the last of
    them arrived; `None` if there is no such probe.
    """

    begin_ns: int
    end_ns: int | None
    lost: int

    @property
    def duration_ms(self) -> float:
        """Duration in milliseconds; infinity if no end was seen."""
        return math.inf if self.end_ns is None else (self.end_ns - self.begin_ns) / 1e6


@dataclass(frozen=True)
class Ticks:
    """The ticks of a prober, and those that it skipped because it was too late."""

    all: int = 0
    skipped: int = 0


def read_records(text: str) -> tuple[list[PairRecord], Ticks]:
    """Parse a prober's records, in the format that `traffic_gen.probes.prober` describes."""
    recorded, pairs = json.loads(text), list[PairRecord]()
    for pair in recorded["pairs"]:
        delays_ns = pair["delay_ns"]
        sent_ns = tuple(accumulate(pair["gap_ns"], initial=pair["first_ns"])) if delays_ns else ()
        both = enumerate(zip(sent_ns, delays_ns, strict=True))
        arrived = {number: sent + delay for number, (sent, delay) in both if delay is not None}
        pairs.append(PairRecord(pair["name"], sent_ns, arrived))
    return pairs, Ticks(recorded["ticks"], recorded["skipped"])


def blackouts(record: PairRecord) -> list[Blackout]:
    """Return all blackouts of a pair, in the order in which they began; no two share a probe.

    A blackout that ends with a slow probe may end after the next one has begun.
    """
    lost = []
    for is_lost, run in groupby(range(len(record.sent_ns)), lambda n: n not in record.arrived_ns):
        if is_lost:
            numbers = list(run)
            begin_ns, end_ns = record.sent_ns[numbers[0]], record.arrived_ns.get(numbers[-1] + 1)
            lost.append(Blackout(begin_ns, end_ns, len(numbers)))
    return lost


def longest(records: Iterable[PairRecord], after_ns: int) -> Blackout | None:
    """Return the longest blackout of any pair that ended after `after_ns`; `None` if none did.

    A blackout whose end was not seen counts as the longest. A fault also drops probes in flight,
    so a blackout may begin a little before `after_ns`.
    """
    candidates = [
        blackout
        for record in records
        for blackout in blackouts(record)
        if blackout.end_ns is None or blackout.end_ns > after_ns
    ]
    return max(candidates, key=lambda blackout: (blackout.duration_ms, blackout.lost), default=None)


def longest_possible_ms(
    records: Iterable[PairRecord], between: tuple[int, int], tick_ns: int
) -> float:
    """Return an upper bound on the length of any blackout, in milliseconds.

    The bound is the longest time between two consecutive probes that arrived, less one tick, after
    which the next probe is due. It exceeds `longest` if the prober was late. Time without probes
    at the end of `between`, in nanoseconds, counts too.
    """
    begin_ns, end_ns = between
    unknown_ns = (
        reached_ns - max(begin_ns, unreached_ns + tick_ns)
        for record in records
        for unreached_ns, reached_ns in _unknown(record, end_ns)
        if reached_ns > begin_ns
    )
    return max(unknown_ns, default=0) / 1e6


def _unknown(record: PairRecord, end_ns: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each time between moments at which a pair is known to be connected."""
    arrived = sorted(record.arrived_ns)
    for one, other in pairwise(arrived):
        reached_ns = record.sent_ns if other == one + 1 else record.arrived_ns
        yield record.sent_ns[one], reached_ns[other]
    if arrived and arrived[-1] == len(record.sent_ns) - 1:
        yield record.sent_ns[-1], end_ns


def lost(records: Iterable[PairRecord], between: tuple[int, int]) -> int:
    """Count the lost probes among those sent in the half-open interval `between`."""
    begin_ns, end_ns = between
    return sum(
        begin_ns <= sent_ns < end_ns and number not in record.arrived_ns
        for record in records
        for number, sent_ns in enumerate(record.sent_ns)
    )


def crossed(
    record: PairRecord, before_ns: tuple[int, int], after_ns: tuple[int, int]
) -> tuple[int, int]:
    """Return the least and the most probes that crossed each link on the path between two readings.

    `before_ns` and `after_ns` are the begin and end of each reading of the links' counters. A probe
    sent after the first reading that arrived before the second one has crossed all links. A probe
    under way during a reading may have crossed a link before or after it, a lost probe never.
    """
    least = most = 0
    for number, sent_ns in enumerate(record.sent_ns):
        counted_ns = record.arrived_ns.get(number, ALWAYS_NS[1]) + COUNTED_WITHIN_NS
        least += before_ns[1] < sent_ns and counted_ns < after_ns[0]
        most += before_ns[0] <= counted_ns and sent_ns <= after_ns[1]
    return least, most
