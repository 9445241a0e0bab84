"""The timeline of a run in the Trace Event Format, which Perfetto and Chrome's tracing open.

Google's document "Trace Event Format" defines the events: `X` is a slice, `i` an instant, `C` a
counter, `M` the name of a process or thread. Times are microseconds since the earliest event, as
Perfetto drops what is before zero. GPU proxies are processes, as are the run, the faults, the
controller and the links.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from model.arrays import Floats, Ints
from model.errors import InputError, Problem
from model.fabric.topology import Hop, Link
from results.report import analysis
from results.report.run_data import CaseData, Columns, RunData, rows
from results.store.records import read_record, reading
from results.store.runs import DEGRADED, DURING, RECOVERED

Event = dict[str, Any]
RUN, FAULTS, CONTROLLER, LINKS, FIRST_GPU = 1, 2, 3, 4, 10
EXECUTIONS, STEPS = 1, 2
# Threads of a GPU: one for its waits, then lanes of slices that do not overlap, as many as there
# are transfers at once.
WAITS, SENDS, RECEIVES = 1, 2, 2**30
# Slices of an execution's time, for computed and for sampled link use.
SLICES, SAMPLED_SLICES = 40, 200
NS_PER_US = 1e3


def timeline(run: RunData) -> dict[str, Any]:
    """Return the trace of a run; raise `InputError` if it has no executions."""
    if not run.cases:
        raise InputError(Problem(str(run.folder), "has no execution to show"))
    events = list(_events(run))
    events += _thread_names(events)
    zero_ns = min(event["ts"] for event in events if "ts" in event)
    for event in events:
        if "ts" in event:
            event["ts"] = (event["ts"] - zero_ns) / NS_PER_US
        if "dur" in event:
            event["dur"] /= NS_PER_US
    about = {"run": run.result["run_id"]}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _events(run: RunData) -> Iterator[Event]:
    names = {RUN: "run", FAULTS: "faults", CONTROLLER: "controller", LINKS: "links"}
    for process, name in names.items():
        yield _named("process_name", process, 0, name)
    # Every rank that any case has, by the GPU that has the rank at first.
    gpus = max((case.topology.job_gpus for case in run.cases.values()), key=len)
    for rank, gpu in enumerate(gpus):
        yield _named("process_name", FIRST_GPU + rank, 0, gpu.name)
    for case in run.cases.values():
        spans = analysis.spans(case)
        for row in range(len(case.executions["number"])):
            yield from _execution(case, row, spans)
        yield from _sampled_use(case)
        yield from _transport(case)
    # Faults that overlap have different threads.
    spans_of_faults = list(_fault_spans(run))
    taken = lanes([begin for _, begin, _ in spans_of_faults], [end for *_, end in spans_of_faults])
    for lane, span in zip(taken, spans_of_faults, strict=True):
        yield _slice(FAULTS, 1 + lane, *span)
    yield from _journals(run)


def _thread_names(events: Sequence[Event]) -> Iterator[Event]:
    """Yield the name of every thread that has slices."""
    run = {EXECUTIONS: "executions", STEPS: "steps"}
    for process, thread in sorted({(e["pid"], e["tid"]) for e in events if e["ph"] == "X"}):
        of_gpu = "waits" if thread == WAITS else "sends" if thread < RECEIVES else "receives"
        name = {RUN: run.get(thread, ""), FAULTS: "faults"}.get(process, of_gpu)
        yield _named("thread_name", process, thread, name)


def _event(kind: str, name: str, process: int, thread: int, **more: Any) -> Event:
    return {"ph": kind, "name": name, "pid": process, "tid": thread, **more}


def _named(what: str, process: int, thread: int, name: str) -> Event:
    return _event("M", what, process, thread, args={"name": name})


def _slice(process: int, thread: int, name: str, begin_ns: int, end_ns: int, **more: Any) -> Event:
    took_ns = max(0, end_ns - begin_ns)
    return _event("X", name, process, thread, ts=begin_ns, dur=took_ns, args=more)


def _execution(case: CaseData, row: int, spans: Columns) -> Iterator[Event]:
    """Yield an execution: itself, its steps, what each GPU did, and the use of links."""
    execution = {name: column[row] for name, column in case.executions.items()}
    number, start_ns = int(execution["number"]), int(execution["start_ns"])
    end_ns = int(case.ends_ns[row])
    name = f"{case.name} #{number}" + (" (warm-up)" if execution["warmup"] else "")
    yield _slice(RUN, EXECUTIONS, name, start_ns, end_ns)
    transfers = rows(spans, spans["repeat"] == number)
    transfers = rows(transfers, np.argsort(transfers["transfer"]))
    yield from _steps(transfers, start_ns)
    for rank in range(len(case.topology.job_gpus)):
        yield from _gpu(case, rank, transfers, start_ns, end_ns)
    # No fault has changed the paths.
    if not case.name.endswith((f"/{DURING}", f"/{DEGRADED}", f"/{RECOVERED}")):
        yield from _link_use(case, transfers, start_ns, end_ns)


def _steps(transfers: Columns, start_ns: int) -> Iterator[Event]:
    """Yield a slice for each step: from the end of the one before until all have arrived."""
    numbers, before_ns = analysis.step_numbers(transfers["source"], transfers["lane"]), start_ns
    for step in range(int(numbers.max(initial=-1)) + 1):
        end_ns = max(before_ns, int(transfers["ended_ns"][numbers == step].max()))
        yield _slice(RUN, STEPS, f"step {step + 1}", before_ns, end_ns)
        before_ns = end_ns


def _gpu(
    case: CaseData, rank: int, transfers: Columns, start_ns: int, end_ns: int
) -> Iterator[Event]:
    """Yield the sends and receives of a GPU, and its waits between them."""
    process, busy = FIRST_GPU + rank, []
    gpus = case.topology.job_gpus
    for own, other, first_lane, words in (
        ("source", "destination", SENDS, "to"),
        ("destination", "source", RECEIVES, "from"),
    ):
        mine = rows(transfers, transfers[own] == rank)
        begins, ends = mine["begun_ns"].tolist(), mine["ended_ns"].tolist()
        busy += list(zip(begins, ends, strict=True))
        for row, lane in enumerate(lanes(begins, ends)):
            name = f"{words} {gpus[int(mine[other][row])].name}"
            size, transfer = int(mine["size_bytes"][row]), int(mine["transfer"][row])
            span = begins[row], ends[row]
            yield _slice(process, first_lane + lane, name, *span, bytes=size, transfer=transfer)
    for begin_ns, wait_end_ns in gaps(busy, start_ns, end_ns):
        yield _slice(process, WAITS, "waits", begin_ns, wait_end_ns)


def lanes(begins: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Give each span the first lane that is free when it begins."""
    taken, free_at = [0] * len(begins), list[int]()
    for span in sorted(range(len(begins)), key=lambda number: begins[number]):
        lane = next((n for n, end in enumerate(free_at) if end <= begins[span]), len(free_at))
        free_at[lane : lane + 1] = [ends[span]]
        taken[span] = lane
    return taken


def gaps(busy: Iterable[tuple[int, int]], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the spans from `begin` to `end` that no busy span covers."""
    for busy_from, busy_until in sorted(busy):
        if busy_from > begin:
            yield begin, min(busy_from, end)
        begin = max(begin, busy_until)
    if begin < end:
        yield begin, end


def _link_use(case: CaseData, transfers: Columns, start_ns: int, end_ns: int) -> Iterator[Event]:
    """Yield the use of every link, computed: bytes of a transfer, spread evenly over its time."""
    paths, slice_ns = analysis.paths_of(case), (end_ns - start_ns) / SLICES
    columns = (transfers[name].tolist() for name in analysis.ENDS)
    hops = [paths[pair] for pair in zip(*columns, strict=True)]
    crossing = rows(transfers, np.repeat(np.arange(len(hops)), [len(path) for path in hops]))
    numbers = {hop: n for n, hop in enumerate(dict.fromkeys(h for path in hops for h in path))}
    row = np.array([numbers[hop] for path in hops for hop in path], int)
    rates = analysis.spread_rates(crossing, row, (len(numbers), SLICES), (start_ns, end_ns))
    rates /= case.topology.spec.entropies
    used = {hop: rates[number] / hop.link.rate_bps for hop, number in numbers.items()}
    for link in {hop.link: None for hop in numbers}:
        ways = {"up": Hop(link, link.lower.node), "down": Hop(link, link.upper.node)}
        shares = {to: used.get(hop, np.zeros(SLICES)) for to, hop in ways.items()}
        yield from _use_of(link, shares, start_ns, slice_ns)


def _sampled_use(case: CaseData) -> Iterator[Event]:
    """Yield the use of every link as its counters say, over the time of all samples."""
    if not len(case.link_samples["ns"]):
        return
    edges_s = np.linspace(0, float(analysis.sample_times_s(case).max()), SAMPLED_SLICES + 1)
    start_ns, slice_ns = case.begun_ns, edges_s[1] * analysis.NS_PER_S
    for link in case.topology.links:
        rates = {to: analysis.throughput_bps(case, link, to, edges_s) for to in analysis.DIRECTIONS}
        shares = {to: bps / link.rate_bps for to, bps in rates.items()}
        yield from _use_of(link, shares, start_ns, slice_ns)


def _transport(case: CaseData) -> Iterator[Event]:
    """Yield the rate and the counts of each queue pair, and the queue of each port of a switch."""
    executions = case.executions
    for number, start_ns in zip(executions["number"], executions["start_ns"], strict=True):
        for name, of in analysis.queue_pairs(case, number):
            process = FIRST_GPU + int(of["source"][0])
            counts = {"Mbit/s": np.round(analysis.rates_bps(of) / 1e6, 3)}
            counts |= _of_packets(of)
            yield from _counter(process, name, of["ns"] + int(start_ns), counts)
    for name, of in analysis.ports(case):
        counts = {"bytes queued": of["backlog_bytes"], **_of_packets(of)}
        yield from _counter(LINKS, f"queue of {name}", of["ns"], counts)


def _of_packets(of: Columns) -> dict[str, Any]:
    """Return what befell packets so far, by the report's words."""
    return {words: of[key] for key, words in analysis.EVENTS.items() if key in of}


def _counter(process: int, name: str, ns: Ints, values: Columns) -> Iterator[Event]:
    for row, ts in enumerate(ns.tolist()):
        args = {key: float(column[row]) for key, column in values.items()}
        yield _event("C", name, process, 0, ts=ts, args=args)


def _use_of(
    link: Link, shares: Mapping[str, Floats], start_ns: int, slice_ns: float
) -> Iterator[Event]:
    """Yield the use of a link in both directions, in percent of its rate, where it changes."""
    before: dict[str, float] = {}
    percents = ([round(100 * share, 1) for share in way.tolist()] for way in shares.values())
    for moment, now in enumerate([*zip(*percents, strict=True), (0.0,) * len(shares)]):
        values = {f"{to} (%)": share for to, share in zip(shares, now, strict=True)}
        if values != before:
            ts = start_ns + round(moment * slice_ns)
            yield _event("C", link.name, LINKS, 0, ts=ts, args=values)
        before = values


def _fault_spans(run: RunData) -> Iterator[tuple[str, int, int]]:
    """Yield each fault's name, begin and end: the last execution's end if it lasts longer."""
    for failure in run.result["failures"]:
        case = run.cases.get(f"{failure['case']}/{DURING}")
        if case is None:
            continue
        start_ns, last_ns = case.begun_ns, int(case.ends_ns.max())
        for times in failure["times"]:
            begin_ns = start_ns + round(times["begun_s"] * analysis.NS_PER_S)
            ended_s = times["ended_s"]
            end_ns = last_ns if ended_s is None else start_ns + round(ended_s * analysis.NS_PER_S)
            yield f"{failure['fabric']}: {times['fault']}", begin_ns, end_ns


def _journals(run: RunData) -> Iterator[Event]:
    """Yield the controller's journals as instants, a thread for each fabric."""
    for thread, journal in enumerate(sorted(run.folder.glob("controller-*.jsonl")), start=1):
        name = journal.stem.removeprefix("controller-")
        yield _named("thread_name", CONTROLLER, thread, name)
        with reading(journal):
            events = [json.loads(line) for line in read_record(journal).splitlines()]
            for event in events:
                ts, what = int(event.pop("ns")), str(event.pop("event"))
                yield _event("i", what, CONTROLLER, thread, s="p", ts=ts, args=event)
