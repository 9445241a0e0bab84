"""Read the controller's journal: whether it has converged after a failure, and how soon."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import dropwhile, takewhile
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Any

from linux.processes.lifetime import wait_for
from model.fabric.health import Epoch
from model.fabric.link_probes import longest_detection_s
from model.fabric.topology import Topology
from model.faults import rates_left
from model.job.placement import Placement
from model.measurement.records import FaultRecord
from results.verdicts.fault_impact import FaultTimes
from testbed.nodes.controller_process import read_journal
from testbed.testbed import Testbed

# Longest wait for convergence in seconds, beyond the detection of a gray failure.
DEADLINE_S = 15.0
# The controller's events once all pairs use their new paths, and once it removed the old ones.
REROUTED = ("confirmed", "settled")
CONVERGED = ("settled",)
Event = dict[str, Any]
Events = Sequence[Event]


def wait_until_converged(
    bed: Testbed, failed: frozenset[str], reached: Sequence[str] = CONVERGED
) -> None:
    """Wait until the controller has converged on exactly these failed links.

    `REROUTED` is reached before `CONVERGED`. Raises `EmulationError` after a deadline, or if a part
    of the testbed dies.
    """
    links = ", ".join(sorted(failed)) or "none"
    wait_for(
        lambda: is_converged(read_journal(bed.controller.journal), failed, reached),
        f"convergence of the controller on failed links {links}",
        DEADLINE_S + longest_detection_s(bed.topology),
        bed.watch.check,
    )


def is_converged(
    events: Events, failed: frozenset[str], reached: Sequence[str] = CONVERGED
) -> bool:
    """Whether the last computed state has exactly these failed links, and was reached."""
    for event in reversed(events):
        if event["event"] == "computed":
            return False
        if event["event"] in reached:
            computed = [event for event in events if event["event"] == "computed"]
            return frozenset(computed[-1]["failed"]) == failed
    return False


def has_detected(journal: Path, since_ns: int) -> bool:
    """Whether the controller has detected a failed or slow link, or a dead proxy, since then."""
    events: Events = read_journal(journal)
    return any(event["ns"] > since_ns and _is_failure(event) for event in events)


def _is_failure(event: Event) -> bool:
    """Whether the controller detected a failed or slow link, or a dead proxy; not a return."""
    return event["event"] in ("detected", "died") and "usable" not in event


# A moment of CLOCK_MONOTONIC in nanoseconds, and fields of the fabric's health from then on.
Change = tuple[int, dict[str, Any]]


def epochs_of(
    events: Events, start_ns: int, placement: Placement, rates: Iterable[Change] = ()
) -> list[Epoch]:
    """Intervals of constant fabric state since the start.

    Failed links are those that `confirmed` events have taken out of use.
    """
    epochs = [Epoch(placement.topology)]
    for ns, changed in sorted((*_confirmed(events), *rates), key=itemgetter(0)):
        if ns > start_ns:
            health = replace(epochs[-1].health, **changed)
            epochs.append(Epoch(placement.topology, health, (ns - start_ns) / 1e9))
    return epochs


def _confirmed(events: Events) -> Iterator[Change]:
    failed: frozenset[str] = frozenset()
    for event in events:
        if event["event"] == "computed":
            failed = frozenset(event["failed"])
        elif event["event"] == "confirmed":
            yield event["ns"], {"failed": failed}


def rate_changes(topology: Topology, records: Iterable[FaultRecord]) -> Iterator[Change]:
    """Yield the rates of all degraded links at each moment at which one of them changes."""
    slow = [record for record in records if record.fault.rate_bps is not None]
    for ns in sorted({ns for one in slow for ns in (one.begun_ns, one.ended_ns) if ns}):
        lasting = (one.fault for one in slow if one.begun_ns <= ns < (one.ended_ns or inf))
        yield ns, {"rates_bps": rates_left(topology, lasting)}


def fault_times(record: FaultRecord, start_ns: int, events: Events) -> FaultTimes:
    """Times of a fault's begin and end, of its detection, and of the controller's response to it.

    A link that flaps is held down: further failures are not detected, and need no response.
    """
    response, ended_ns = _response(record, events), record.ended_ns
    behind = [event for event in events if ended_ns and event["ns"] > ended_ns]
    returned = list(dropwhile(lambda event: "usable" not in event, behind))

    def milliseconds_until(*names: str) -> float | None:
        return _milliseconds(response, names, record.begun_ns)

    return FaultTimes(
        fault=record.fault.name,
        begun_s=(record.begun_ns - start_ns) / 1e9,
        ended_s=None if ended_ns is None else (ended_ns - start_ns) / 1e9,
        detected_ms=milliseconds_until("detected", "died"),
        computed_ms=milliseconds_until("computed"),
        sent_ms=milliseconds_until("sent"),
        confirmed_ms=milliseconds_until("confirmed"),
        usable_ms=_milliseconds(returned, ("detected",), ended_ns or 0),
        returned_ms=_milliseconds(returned, ("confirmed",), ended_ns or 0),
    )


def _milliseconds(events: Events, names: Sequence[str], since_ns: int) -> float | None:
    """Return the milliseconds until the first of these events, `None` if there is none."""
    first = next((event["ns"] for event in events if event["event"] in names), None)
    return None if first is None else (first - since_ns) / 1e6


def _response(record: FaultRecord, events: Events) -> Events:
    """Return the events from a fault's detection, while it lasted, until its link is usable again.

    Empty if the controller did not detect the fault.
    """
    ended_ns = inf if record.ended_ns is None else record.ended_ns
    behind = [event for event in events if event["ns"] > record.begun_ns]
    response = list(dropwhile(lambda event: not _is_failure(event), behind))
    if not response or response[0]["ns"] > ended_ns:
        return []
    link = response[0].get("link")
    return list(takewhile(lambda e: "usable" not in e or e["link"] != link, response))
