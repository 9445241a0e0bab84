"""Timelines: valid by the Trace Event Format, and true to the records."""

import json
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands.timeline import timeline as write_timeline
from model.errors import InputError
from results.report.run_data import RunData, read_run
from results.report.timeline import FAULTS, LINKS, gaps, lanes, timeline
from tests.unit.stored_runs import stored_run

JOURNAL = (
    '{"ns": 10000000005, "event": "detected", "link": "d0g0--rail0"}\n'
    '{"ns": 10000000009, "event": "confirmed", "generation": 1}\n'
)
# The fields that each phase of the format must have, beside those of all events.
FIELDS = {"X": {"ts", "dur"}, "i": {"ts", "s"}, "C": {"ts", "args"}, "M": {"args"}}


@pytest.fixture(scope="module", params=[False, True], ids=["intact", "faults"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunData:
    folder = stored_run(tmp_path_factory.mktemp("runs"), faults=request.param)
    (folder / "controller-rail-only.jsonl").write_text(JOURNAL)
    return read_run(folder)


@pytest.fixture(scope="module")
def events(run: RunData) -> list[dict[str, Any]]:
    trace = json.loads(json.dumps(timeline(run)))
    assert trace["displayTimeUnit"] in ("ms", "ns")
    found: list[dict[str, Any]] = trace["traceEvents"]
    return found


def test_every_event_has_the_fields_of_its_phase(events: list[dict[str, Any]]) -> None:
    for event in events:
        assert FIELDS[event["ph"]] <= event.keys()
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event.get("dur", 0) >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, float) for value in event["args"].values())
        if event["ph"] == "i":
            assert event["s"] in ("g", "p", "t")
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)


def test_every_process_has_a_name(events: list[dict[str, Any]]) -> None:
    named = {event["pid"] for event in events if event["name"] == "process_name"}
    assert {event["pid"] for event in events} == named


def test_every_thread_with_slices_has_one_name(events: list[dict[str, Any]]) -> None:
    of = [(e["pid"], e["tid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"]
    names = {(process, thread): name for process, thread, name in of}
    assert len(names) == len(of)
    slices = [event for event in events if event["ph"] == "X"]
    words = {event["name"].split()[0]: names[event["pid"], event["tid"]] for event in slices}
    assert words.items() >= {"to": "sends", "from": "receives", "step": "steps"}.items()


def test_slices_of_a_thread_do_not_overlap(events: list[dict[str, Any]]) -> None:
    require_apart(events)


def test_a_gpu_may_send_to_hundreds_at_once(run: RunData) -> None:
    name, case = next(iter(run.cases.items()))
    many = {key: np.repeat(column, 150) for key, column in case.transfers.items()}
    crowded = timeline(replace(run, cases={name: replace(case, transfers=many)}))
    require_apart(crowded["traceEvents"])


def require_apart(events: list[dict[str, Any]]) -> None:
    slices = sorted(
        (e["pid"], e["tid"], e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X"
    )
    for _, thread in groupby(slices, lambda found: found[:2]):
        end = -1.0
        for _, _, begin, until in thread:
            assert begin >= end - 0.001  # the last digit of a nanosecond in microseconds
            end = until


def test_queue_pairs_and_queues_are_counters_true_to_their_samples(
    run: RunData, events: list[dict[str, Any]]
) -> None:
    counters = [event for event in events if event["ph"] == "C"]
    rates = [event["args"] for event in counters if "Mbit/s" in event["args"]]
    samples = sum(len(case.queue_pairs["ns"]) for case in run.cases.values())
    repeated = sum(int(case.queue_pairs["repeated"].sum()) for case in run.cases.values())
    assert len(rates) == samples
    assert sum(one["packets retransmitted"] for one in rates) == repeated > 0
    assert all((one["Mbit/s"] > 0) == (one["packets retransmitted"] == 0) for one in rates)
    assert all("CNPs" in one for one in rates)
    queues = [event["args"] for event in counters if event["name"].startswith("queue of ")]
    assert [one["bytes queued"] for one in queues] == [0, 1000, 2000] * len(run.cases)
    assert all({"packets marked", "packets dropped"} < one.keys() for one in queues)


def test_every_transfer_is_sent_and_received(run: RunData, events: list[dict[str, Any]]) -> None:
    transfers = sum(len(case.transfers["transfer"]) for case in run.cases.values())
    names = [event["name"] for event in events if event["ph"] == "X"]
    assert sum(name.startswith("to ") for name in names) == transfers
    assert sum(name.startswith("from ") for name in names) == transfers
    sent = sum(e["args"]["bytes"] for e in events if e["name"].startswith("to "))
    assert sent == sum(int(case.transfers["size_bytes"].sum()) for case in run.cases.values())


def test_nothing_is_before_zero(run: RunData) -> None:
    """Perfetto drops it: the controller's journal begins before the first execution."""
    journal = run.folder / "controller-rail-optimized.jsonl"
    journal.write_text('{"ns": 9000000000, "event": "started"}\n')
    moments_us = [event["ts"] for event in timeline(run)["traceEvents"] if "ts" in event]
    journal.unlink()
    assert min(moments_us) == 0


def test_faults_that_overlap_have_different_threads(run: RunData) -> None:
    again = [
        {**failure, "times": [*failure["times"], {**failure["times"][0], "begun_s": 0.4}]}
        for failure in run.result["failures"]
    ]
    overlapping = timeline(replace(run, result={**run.result, "failures": again}))
    faults = [e for e in overlapping["traceEvents"] if e["ph"] == "X" and e["pid"] == FAULTS]
    assert [fault["tid"] for fault in faults] == [1, 2] * len(again)


def test_what_an_abort_cuts_off_has_a_slice(run: RunData) -> None:
    name, case = next(iter(run.cases.items()))
    none_ns = np.zeros_like(case.transfers["arrived_ns"])
    cut_off = replace(case, transfers={**case.transfers, "arrived_ns": none_ns})
    events = timeline(replace(run, cases={**run.cases, name: cut_off}))["traceEvents"]
    sends = [event for event in events if event["name"].startswith("to ")]
    assert len(sends) == sum(len(one.transfers["transfer"]) for one in run.cases.values())
    (whole,) = (event for event in events if event["name"] == f"{name} #0")
    ends = {round(e["ts"] + e["dur"]) for e in sends if e["ts"] < whole["dur"]}
    assert ends == {round(whole["ts"] + whole["dur"])}


def test_the_controller_and_the_faults_are_there(
    run: RunData, events: list[dict[str, Any]]
) -> None:
    reactions = [event["name"] for event in events if event["ph"] == "i"]
    assert reactions == ["detected", "confirmed"]
    faults = [event for event in events if event["name"] == "rail-only: d0g0--rail0 down"]
    assert len(faults) == len(run.result["failures"])
    # The fault is in the third execution, which begins 20 s after the first, and lasts until the
    # end of the fourth.
    assert all(fault["ts"] == pytest.approx(20.3e6) for fault in faults)
    ends = [e["ts"] + e["dur"] for e in events if e["name"].endswith("/during_fault #1")]
    assert [fault["ts"] + fault["dur"] for fault in faults] == pytest.approx(ends)


def test_links_are_used_up_to_their_rate(run: RunData, events: list[dict[str, Any]]) -> None:
    used = [event for event in events if event["ph"] == "C" and "up (%)" in event["args"]]
    shares = [share for event in used for share in event["args"].values()]
    assert {event["pid"] for event in used} == {LINKS}
    links = {link.name for case in run.cases.values() for link in case.topology.links}
    assert {event["name"] for event in used} <= links
    assert 0 == min(shares) < max(shares)


def test_links_under_a_fault_are_used_as_sampled(
    run: RunData, events: list[dict[str, Any]]
) -> None:
    during = [case for name, case in run.cases.items() if name.endswith("/during_fault")]
    for case in during:
        first_ns = min(int(c.executions["start_ns"].min()) for c in run.cases.values())
        begin_us = (int(case.executions["start_ns"].min()) - first_ns) / 1e3
        for link in case.topology.links:
            used = [
                (event["ts"] - begin_us, event["args"]["up (%)"])
                for event in events
                if event["name"] == link.name and begin_us <= event["ts"] <= begin_us + 2e6
            ]
            assert used == [(pytest.approx(0), 100.0), (pytest.approx(1e6), 0.0)]


SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=20)


@given(SPANS)
def test_lanes_hold_spans_that_do_not_overlap(found: list[tuple[int, int]]) -> None:
    spans = [(begin, begin + length) for begin, length in found]
    placed = lanes([begin for begin, _ in spans], [end for _, end in spans])
    for lane in set(placed):
        own = sorted(span for span, number in zip(spans, placed, strict=True) if number == lane)
        assert all(one[1] <= other[0] for one, other in pairwise(own))


@given(SPANS)
def test_gaps_are_what_nothing_covers(found: list[tuple[int, int]]) -> None:
    busy = [(begin, begin + length) for begin, length in found]
    free = {n for begin, end in gaps(busy, 10, 60) for n in range(begin, end)}
    covered = {n for begin, end in busy for n in range(begin, end)}
    assert free == set(range(10, 60)) - covered


def test_the_command_writes_the_file(tmp_path: Path) -> None:
    folder = stored_run(tmp_path)
    write_timeline(folder.name, tmp_path / "new" / "a.json", tmp_path)
    assert json.loads((tmp_path / "new" / "a.json").read_text())["otherData"]["run"] == folder.name


def test_a_damaged_journal_is_a_sentence(tmp_path: Path) -> None:
    folder = stored_run(tmp_path)
    (folder / "controller-rail-only.jsonl").write_text("{")
    with pytest.raises(InputError, match=r"controller-rail-only.jsonl: cannot be parsed"):
        timeline(read_run(folder))
