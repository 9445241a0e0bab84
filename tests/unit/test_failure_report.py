"""The report of a run with faults: its phases, and the throughput of links."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.patches import StepPatch

from results.render.page import Article
from results.report.analysis import failed_links, link_use, spans, throughput_bps
from results.report.fault_pictures import links_shown, moments, sentence
from results.report.run import phases_as_cases, run_article
from results.report.run_data import CaseData, RunData, read_run
from results.sections.section import human_bytes
from results.store.tables import LINK_SAMPLES, sealed
from tests.unit.articles import failure_article, failure_run
from tests.unit.stored_runs import stored_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    return failure_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def failed(run: RunData) -> Article:
    return failure_article(run)


def test_the_answer_of_a_failure_tells_its_moments(run: RunData, failed: Article) -> None:
    assert failed.answer.startswith(
        "Nic-link down at d0g0--rail0 on rail-only: detected after 1 ms, new paths confirmed "
        "after 10 ms; longest blackout 14 ms; with it, an execution takes 1.01 times as long "
        "(modeled: 1.00). Measured over modeled is 1.010 in the degraded phase."
    )
    failure = run.result["failures"][0]
    events, seconds = zip(*moments(failure), strict=True)
    assert events == ("begins", "detected", "confirmed")
    assert seconds == pytest.approx((0.3, 0.3012, 0.3098))


def test_times_of_a_failure_whose_data_was_checked_are_not_in_the_answer(run: RunData) -> None:
    (failure,) = run.result["failures"]
    checked = {**run.result, "failures": [{**failure, "data_is_right": True}]}
    answer = run_article(replace(run, result=checked), {}).answer
    assert "longest blackout 14 ms. The verdict is" in answer


def test_the_times_of_a_link_that_flaps_are_a_range(run: RunData) -> None:
    failure = run.result["failures"][0]
    (times,) = failure["times"]
    flaps = [{**times, "returned_ms": returned_ms} for returned_ms in (225.2, 593.4, None)]
    told = sentence({**failure, "times": flaps})
    assert told.endswith(
        "detected after 1 ms, new paths confirmed after 10 ms, old ones 225 to 593 ms after its "
        "end; longest blackout 14 ms."
    )


def test_the_phases_of_a_failure_are_measured_beside_modeled(run: RunData, failed: Article) -> None:
    assert failed.parts[0].section.title == "Completion time by phase"
    failure = run.result["failures"][0]
    (picture,) = failed.parts[0].pictures
    axes = picture.figure.axes[0]
    names = [label.get_text().rpartition("/")[2] for label in axes.get_yticklabels()]
    assert names == ["baseline", "degraded", "recovered"]
    shown: dict[object, list[float]] = {}
    for line in axes.lines:
        shown.setdefault(line.get_marker(), []).extend(np.asarray(line.get_xdata()).tolist())
    assert shown["o"] == [failure[key] for key in ("baseline_s", "degraded_s", "recovered_s")]
    modeled = [failure[f"modeled_{phase}_s"] for phase in ("baseline", "degraded", "baseline")]
    assert shown["|"] == modeled


def test_a_restarted_job_is_measured_beside_its_model(run: RunData) -> None:
    (failure,) = run.result["failures"]
    restarted = {
        **failure,
        "during_fault_s": 2.9,
        "modeled_during_fault_s": 2.8,
        "recovered_s": None,
    }
    changed = replace(run, result={**run.result, "failures": [restarted]})
    during = phases_as_cases(changed)[1]
    assert during["case"].endswith("/during_fault")
    assert during["measured_s"] == {"median": 2.9, "min": 2.9, "max": 2.9}
    assert during["ratio"] == pytest.approx(2.9 / 2.8)


@pytest.mark.parametrize(
    ("started_ns", "carried"),
    [
        # A NIC link of 20 Mbit/s carries 2500 bytes in a millisecond.
        (1_499_000_000, 2500),
        # Begun before the agent was told of the abort.
        (1_501_000_000, 0),
    ],
)
def test_what_an_abort_cuts_off_is_sent_until_then(
    run: RunData, started_ns: int, carried: int
) -> None:
    during = _during(run)
    transfers = dict(during.transfers)
    cut_off = (transfers["repeat"] == 0) & (transfers["arrived_ns"] > 500_000_000)
    by_nic = cut_off & (transfers["source"] // 2 != transfers["destination"] // 2)
    transfers["arrived_ns"] = np.where(cut_off, 0, transfers["arrived_ns"])
    transfers["started_ns"] = np.where(cut_off, started_ns, transfers["started_ns"])
    executions = {**during.executions, "completion_s": np.array([1.5, 1.0])}
    found = spans(replace(during, executions=executions, transfers=transfers))
    ended_ns = during.begun_ns + max(started_ns, 1_500_000_000)
    assert set(found["ended_ns"][cut_off]) == {ended_ns}
    assert set(found["carried_bytes"][by_nic]) == {carried}
    assert (found["carried_bytes"][~cut_off] == transfers["size_bytes"][~cut_off]).all()


def test_the_fabric_with_a_fault_throughout_is_drawn(run: RunData, failed: Article) -> None:
    (part,) = (one for one in failed.parts if one.section.title.startswith("The fabrics"))
    degraded = next(case for name, case in run.cases.items() if name.endswith("/degraded"))
    drawn = {str(row[0]): row[3] for row in part.section.rows if len(row) > 1}
    assert drawn == {name: human_bytes(link_use([degraded])[name].size_bytes) for name in drawn}


def test_links_carried_what_their_samples_say(run: RunData) -> None:
    during = _during(run)
    edges_s = np.array([0.0, 0.255, 0.9, 1.1, 2.0])
    for link in during.topology.links:
        shares = throughput_bps(during, link, "up", edges_s) / link.rate_bps
        assert shares == pytest.approx([1.0, 1.0, 0.5, 0.0], abs=1e-6)
        assert not throughput_bps(during, link, "down", edges_s).any()


def test_a_frame_is_spread_over_the_time_that_its_link_needs(run: RunData) -> None:
    during = _during(run)
    (link, *_) = during.topology.links
    times_s, start_ns = np.linspace(0, 0.08, 9), during.executions["start_ns"].min()
    # Two frames of two hundredths each are counted at once, after one hundredth.
    counted = np.where(times_s < 0.01, 0, 4 * link.rate_bps / 800)
    sampled = {"link": np.full(9, link.name), "ns": start_ns + (times_s * 1e9).astype(int)}
    changed = replace(during, link_samples={**sampled, "received_bytes": counted})
    found = throughput_bps(changed, link, "up", times_s) / link.rate_bps
    assert found == pytest.approx([1, 1, 1, 1, 0, 0, 0, 0], abs=1e-9)


@pytest.mark.parametrize(("mode", "told"), [("down", "failed"), ("degrade", "degraded")])
def test_failed_and_degraded_links_come_first_then_those_whose_bytes_changed_most(
    run: RunData, mode: str, told: str
) -> None:
    during = _during(run)
    counters = during.counters
    more = counters["sent_bytes"] * np.where(counters["link"] == "d1g1--hb1", 3, 1)
    changed = replace(during, counters={**counters, "sent_bytes": more})
    failure = {"where": "d0g0--rail0", "times": [{"fault": f"d0g0--rail0 {mode}"}]}
    shown = links_shown(failure, during, changed)
    assert list(shown.values())[:2] == [
        f"d0g0--rail0 ({told}): 4 MB, 4 MB without fault",
        "d1g1--hb1: 12 MB, 4 MB without fault",
    ]
    assert len(shown) == 7


@pytest.mark.parametrize(
    ("where", "links"),
    [
        ("d0g0--rail0", {"d0g0--rail0"}),
        ("rail1", {"d0g1--rail1", "d1g1--rail1"}),
        ("d1", {"d1g0--hb1", "d1g0--rail0", "d1g1--hb1", "d1g1--rail1"}),
        ("d0g0, d1g1--hb1", {"d0g0--hb0", "d0g0--rail0", "d1g1--hb1"}),
        ("controller", set()),
    ],
)
def test_a_broken_part_breaks_its_links(run: RunData, where: str, links: set[str]) -> None:
    assert failed_links(_during(run).topology, {"where": where, "times": []}) == links


def test_a_degraded_link_is_not_crossed(run: RunData) -> None:
    (failure,) = run.result["failures"]
    degraded = {**failure, "times": [{**failure["times"][0], "fault": "d0g0--rail0 degrade"}]}
    told = failure_article(replace(run, result={**run.result, "failures": [degraded]}))
    (fabric,) = (picture for picture in told.pictures if picture.name == "fabric-rail-only")
    assert "failed" not in fabric.sentence


def test_the_throughput_of_links_is_drawn_with_the_moments_of_the_fault(failed: Article) -> None:
    (picture,) = (one for one in failed.pictures if one.name == "fault-links-0")
    assert picture.sentence.startswith(
        "Bytes of links in an execution during the fault: d0g0--rail0 (failed): "
    )
    axes, *_ = picture.figure.axes
    shown = [text.get_text() for text in picture.figure.legends[0].get_texts()]
    assert shown[2:] == [
        "the fault begins",
        "the controller detects it",
        "all new rules are confirmed",
    ]
    assert axes.get_xlim() == pytest.approx((0, 2.0))
    up = next(patch for patch in axes.patches if str(patch.get_label()).startswith("up"))
    assert isinstance(up, StepPatch)
    assert up.get_data()[0][:115] == pytest.approx(100, abs=0.01)


def test_a_failure_run_of_an_older_railbed_has_no_throughput(tmp_path: Path) -> None:
    folder = stored_run(tmp_path, faults=True)
    sealed(folder, LINK_SAMPLES).unlink()
    names = [picture.name for picture in run_article(read_run(folder), {}).pictures]
    assert "fault-0" in names
    assert "fault-links-0" not in names


def _during(run: RunData) -> CaseData:
    """The execution during the fault, of a run with one failure."""
    return next(case for name, case in run.cases.items() if name.endswith("/during_fault"))
