"""Read the controller's journal: whether it has converged after a failure, and how soon."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Any

from linux.processes.lifetime import wait_for
from model.fabric.health import Epoch
from model.fabric.link_probes import longest_detection_s
from model.fabric.topology import Topology
from model.faults import FaultMode, broken_links, loses_links, nodes, rates_left
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

    `REROUTED` is reached before `CONVERGED`. A controller that was just started settles first; it
    is ready only once all switches are there, of which one may be dead.
    Raises `EmulationError` after a deadline, or if a part of the testbed dies.
    """
    bed.controller.wait_for_event("settled")
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
    return any(one["ns"] > since_ns and _is_failure(one) for one in read_journal(journal))


def _is_failure(event: Event) -> bool:
    """Whether the controller detected a failed or slow link, or a dead proxy; not a return."""
    return event["event"] in ("detected", "died") and not _is_return(event)


def _is_return(event: Event) -> bool:
    return "usable" in event


# A moment of CLOCK_MONOTONIC in nanoseconds, and fields of the fabric's health from then on.
Change = tuple[int, dict[str, Any]]


def epochs_of(
    events: Events, start_ns: int, placement: Placement, rates: Iterable[Change] = ()
) -> list[Epoch]:
    """Intervals of constant fabric state since the start.

    Failed links are those that confirmed updates have taken out of use.
    """
    epochs = [Epoch(placement.topology)]
    for ns, changed in sorted((*_moved(events), *rates), key=itemgetter(0)):
        if ns > start_ns:
            health = replace(epochs[-1].health, **changed)
            epochs.append(Epoch(placement.topology, health, (ns - start_ns) / 1e9))
    return epochs


def _moved(events: Events) -> Iterator[Change]:
    """Yield when traffic took new paths: with the last rules of its switches, or the host routes.

    An update that moves working traffic is confirmed later, once that has surely happened.
    """
    failed, moved_ns = frozenset[str](), 0
    for event in events:
        name = event["event"]
        if name in ("computed", "installed") or (name == "routes" and event["added"]):
            moved_ns = event["ns"]
        if name == "computed":
            failed = frozenset(event["failed"])
        elif name == "confirmed":
            yield moved_ns, {"failed": failed}


def rate_changes(topology: Topology, records: Iterable[FaultRecord]) -> Iterator[Change]:
    """Yield the rates of all slow and broken links at each moment at which one of them changes."""
    records = [one for one in records if one.fault.mode is not FaultMode.UPGRADE]
    for ns in sorted({ns for one in records for ns in (one.begun_ns, one.ended_ns) if ns}):
        lasting = [one.fault for one in records if one.begun_ns <= ns < (one.ended_ns or inf)]
        broken = (broken_links(topology, one) for one in lasting if loses_links(one.mode))
        yield ns, {"rates_bps": rates_left(topology, lasting) | dict.fromkeys(chain(*broken), 0)}


def fault_times(
    record: FaultRecord, start_ns: int, events: Events, topology: Topology
) -> FaultTimes:
    """Times of a fault's begin and end, of its detection, and of the controller's response to it.

    A link that flaps is held down: further failures are not detected, and need no response. A
    controller that was dead when the fault began does not detect it, but responds once it is back.
    """
    fault, begun_ns, ended_ns = record.fault, record.begun_ns, record.ended_ns
    links = broken_links(topology, fault)
    proxies = nodes(topology, fault)
    own = [e for e in events if e.get("link") in links or e.get("proxy") in proxies]
    # Another fault may slow the link down, or break it, at the same time.
    own = [e for e in own if ("rate_bps" in e) is (fault.mode is FaultMode.DEGRADE)]
    detected_ns, response = _response(record, own, links, events)
    usable_ns, back = _return(record, own, links, events)
    return FaultTimes(
        fault=fault.name,
        begun_s=(begun_ns - start_ns) / 1e9,
        ended_s=None if ended_ns is None else (ended_ns - start_ns) / 1e9,
        detected_ms=_milliseconds(begun_ns, detected_ns),
        computed_ms=_milliseconds(begun_ns, _first_ns(_named("computed", response))),
        sent_ms=_milliseconds(begun_ns, _first_ns(_named("sent", response))),
        confirmed_ms=_milliseconds(begun_ns, _first_ns(_named("confirmed", response))),
        usable_ms=_milliseconds(ended_ns, usable_ns),
        returned_ms=_milliseconds(ended_ns, _first_ns(_named("confirmed", back))),
    )


def _response(
    record: FaultRecord, own: Events, links: frozenset[str], events: Events
) -> tuple[int | None, Events]:
    """Return the detection of a fault while it lasted, and the update that left its links out.

    `own` are the events of its links and proxies; the update has its events, none without one.
    """
    begun_ns, last_ns = record.begun_ns, record.ended_ns or inf
    detected_ns = _first_ns(filter(_is_failure, own), begun_ns, last_ns)
    until_ns = _first_ns(filter(_is_return, own), begun_ns) or inf
    if detected_ns is None:
        until_ns = min(until_ns, last_ns)
    return detected_ns, _update(events, links, begun_ns, until_ns, lost=True)


def _return(
    record: FaultRecord, own: Events, links: frozenset[str], events: Events
) -> tuple[int | None, Events]:
    """Return when a link was usable after the fault, and the update that used one again."""
    if record.ended_ns is None:
        return None, ()
    usable_ns = _first_ns(filter(_is_return, own), record.ended_ns)
    return usable_ns, _update(events, links, usable_ns or inf, lost=False)


def _update(
    events: Events, links: frozenset[str], after_ns: float, until_ns: float = inf, *, lost: bool
) -> Events:
    """Return the first update in an interval that takes links out of use, or, not `lost`, into it.

    It has the events from it on, until another one undoes it.
    """
    failed, begin = frozenset[str](), len(events)
    for number, event in enumerate(events):
        if event["event"] == "computed":
            before, failed = failed, links.intersection(event["failed"])
            done, undone = (failed - before, before - failed)[:: 1 if lost else -1]
            if begin < number and undone:
                return events[begin:number]
            if begin > number and done and after_ns < event["ns"] <= until_ns:
                begin = number
    return events[begin:]


def _named(name: str, events: Events) -> Iterator[Event]:
    return (event for event in events if event["event"] == name)


def _first_ns(events: Iterable[Event], after_ns: int = 0, until_ns: float = inf) -> int | None:
    """Return the time of the first event in an interval, `None` if there is none."""
    return next((event["ns"] for event in events if after_ns < event["ns"] <= until_ns), None)


def _milliseconds(since_ns: int | None, moment_ns: int | None) -> float | None:
    return None if since_ns is None or moment_ns is None else (moment_ns - since_ns) / 1e6
