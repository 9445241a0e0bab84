"""Observe executions: the machine in windows, agents before and after, what links have carried."""

import csv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path

from model.measurement import Repeat
from model.topology import Hop
from model.vitals import Window, within
from results.accounting import Carried
from results.fidelity import Observation
from scenarios.experiment import Experiment
from testbed.vitals import Vitals, thread_times, vitals
from testbed.wiring import Counters


class Observer:
    """Watches the executions of one case on a fabric."""

    def __init__(self, fabric: Experiment, watching: Vitals) -> None:
        self._bed = fabric.bed
        self._watching = watching
        self._delays_ns = self._agents_delays_ns()
        self._ends: list[tuple[Repeat, tuple[float, ...], int]] = []

    def _agents_delays_ns(self) -> dict[int, int]:
        pids = tuple(self._bed.wires.process_ids.values())
        return {pid: times.delay_ns for pid, times in thread_times(pids).items()}

    def note(self, repeat: Repeat) -> None:
        """An execution has ended."""
        before, self._delays_ns = self._delays_ns, self._agents_delays_ns()
        waited = tuple((now - before.get(pid, now)) / 1e9 for pid, now in self._delays_ns.items())
        self._ends.append((repeat, waited, self._bed.wires.longest_queue_bytes()))

    def observations(self) -> tuple[Observation, ...]:
        """Of all executions, in order."""
        windows = self._watching.windows
        return tuple(
            Observation(
                seconds=repeat.completion_s,
                windows=within(windows, repeat.start_ns, repeat.end_ns),
                agents_delay_s=waited,
                backlog_left_bytes=left,
                retransmits=repeat.retransmits,
                start_skew_s=repeat.start_skew_s,
            )
            for repeat, waited, left in self._ends
        )

    def keep(self, folder: Path) -> None:
        """Write all windows, those between executions too, and what each agent waited."""
        with (folder / "waits.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["execution", "agent", "waited_s"])
            for repeat, waited, _ in self._ends:
                rows.writerows([repeat.number, *pair] for pair in enumerate(waited))
        with (folder / "vitals.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["execution", *(field.name for field in fields(Window))])
            for one in self._watching.windows:
                rows.writerow([self._number(one), *asdict(one).values()])

    def _number(self, window: Window) -> int | None:
        """The execution that a window lies in."""
        for repeat, _, _ in self._ends:
            if within([window], repeat.start_ns, repeat.end_ns):
                return repeat.number
        return None


@contextmanager
def observing(fabric: Experiment, folder: Path) -> Iterator[Observer]:
    """Observe for as long as the context lasts; what was seen is kept, whatever happens."""
    with vitals(fabric.bed.open_vswitch) as watching:
        observer = Observer(fabric, watching)
        try:
            yield observer
        finally:
            observer.keep(folder)


def carried(
    fabric: Experiment,
    before: Mapping[str, Counters],
    after: Mapping[str, Counters],
    seconds: float,
) -> Carried:
    """What each direction of each link of the present layout has carried.

    Counters are those of the fabric as it came up; an optical switch has since moved upper ends.
    """
    names = {link.lower: link.name for link in fabric.bed.topology.links}
    found: dict[Hop, int] = {}
    for link in fabric.layout.topology.links:
        old, new = before[names[link.lower]], after[names[link.lower]]
        found[Hop(link, link.lower.node)] = new.received_bytes - old.received_bytes
        found[Hop(link, link.upper.node)] = new.sent_bytes - old.sent_bytes
    return Carried(found, seconds)
