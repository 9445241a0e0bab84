"""The report of runs: true to the data, self-contained, readable without its pictures."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from errno import ENOSPC
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands.compare import compared
from commands.report import articles_about, report
from commands.timeline import timeline
from linux.files.program_files import ROOT
from model.errors import InputError
from model.fabric.build import build_topology, exchanged, straight_cross_connects
from model.fabric.topology import Gpu
from model.workload.transfers.collective import Collective
from results.figures.kit import FORMATS, VALUE_LETTERS, shortened
from results.render.page import Article, Repetition, render
from results.render.terminal import is_heading
from results.report.analysis import (
    link_use,
    pair_bytes,
    queue_pairs,
    step_numbers,
    steps,
)
from results.report.charts import (
    bus_bandwidth,
    completion,
    step_times,
    transfer_times,
    transport_picture,
)
from results.report.fault_pictures import fault_strip, sent_rates
from results.report.run import run_article
from results.report.run_data import RunData, read_run
from results.report.several_runs import comparison_article, sweep_article
from results.sections.machine import executions_section, fidelity_section
from results.sections.run import cases_section, work_sections
from results.sections.section import without_fabric
from results.store.runs import stored_runs
from results.store.tables import EXECUTIONS, TRANSFERS, RawTable, sealed
from tests.unit.articles import failure_article, failure_run, sections_of
from tests.unit.stored_runs import stored_run

OFF = 1.01
# Elements that have no end tag (HTML standard, void elements).
VOID = {"meta", "br", "hr", "img", "link", "input", "wbr"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored_run(tmp_path_factory.mktemp("runs"), off=OFF)


@pytest.fixture(scope="module")
def run(folder: Path) -> RunData:
    return read_run(folder)


@pytest.fixture(scope="module")
def page(run: RunData) -> Article:
    return run_article(run, {})


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    return failure_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def failed(broken: RunData) -> Article:
    return failure_article(broken)


@pytest.fixture(scope="module")
def html(page: Article, failed: Article) -> str:
    return render([page, failed])


class Elements(HTMLParser):
    """The elements of a page; raises `ValueError` where one is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if self._open.pop() != tag:
            raise ValueError(f"</{tag}> closes another element")

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def test_the_page_is_whole_and_needs_no_other_address(html: str) -> None:
    elements = Elements(html)
    addresses = [
        address
        for _, attributes in elements.found
        for key, address in attributes.items()
        if key in ("href", "src", "xlink:href", "action", "data")
    ]
    assert addresses
    assert all(str(address).startswith(("#", "data:")) for address in addresses)
    assert re.findall(r"url\((?!#)", html) == []
    assert not re.search(r"https?://", html)
    assert elements.named("script") == []


def test_names_of_a_scenario_and_a_machine_are_text(html: str) -> None:
    assert "<script>" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert "&lt;b&gt;of a kind" in html


def test_texts_hold_for_pictures_in_both_schemes(page: Article, failed: Article) -> None:
    texts = [part.section.text for part in (*page.parts, *failed.parts)]
    assert not [text for text in texts if re.search(r"\b(dark|light|black|white)\b", text, re.I)]


def test_every_picture_has_words(html: str) -> None:
    elements = Elements(html)
    figures = elements.named("figure")
    assert len(figures) == len(elements.named("svg")) == html.count("<figcaption>")
    assert all(attributes["aria-label"] for attributes in figures)
    assert elements.named("html") == [{"lang": "en"}]
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids))


def test_the_answer_comes_first(html: str, page: Article) -> None:
    assert "Rail-only against rail-optimized: all-reduce/hierarchical: as fast" in page.answer
    assert f"Measured over modeled is {OFF:.3f}. The verdict is pass." in page.answer
    assert html.index("Measured over modeled") < html.index("<svg")


def test_pictures_show_what_was_measured(run: RunData, page: Article, failed: Article) -> None:
    drawn = {picture.name: picture.figure for picture in page.pictures}
    medians = [case["measured_s"]["median"] for case in run.result["cases"]]
    dots = [line for line in drawn["completion"].axes[0].lines if line.get_marker() == "o"]
    shown = [float(np.asarray(line.get_xdata())[0]) for line in dots[: len(medians)]]
    assert shown == medians
    off = [line for line in drawn["residuals"].axes[0].lines if line.get_marker() == "o"]
    assert np.concatenate([line.get_xdata() for line in off]) == pytest.approx(100 * (OFF - 1))
    drawn_failed = {picture.name: picture for picture in failed.pictures}
    assert "failed: d0g0--rail0" in drawn_failed["fabric-rail-only"].sentence
    assert {"fault-0", "fabric-rail-only", "bytes-0"} <= drawn_failed.keys()


def test_all_sections_of_an_intact_run_are_there(page: Article) -> None:
    assert [section.title for section in sections_of(page)] == [
        "Completion time by case",
        "Scales, and the measured time, emulated and on the real platform",
        "Chunks of the data, and the overlap of HB domains and NICs",
        "What rail-only costs, against rail-optimized",
        "Bus bandwidth",
        "The fabrics and the use of their links",
        "Time by step, and the bottleneck link",
        "Bytes between GPUs",
        "Times of transfers",
        "Queue pairs and queues",
        "Fidelity",
        "Executions, and pauses of the machine",
    ]


def test_each_case_has_its_chunks_and_overlap(run: RunData, page: Article) -> None:
    (section,) = (one for one in sections_of(page) if one.title.startswith("Chunks"))
    assert section.columns == ("case", "chunks", "overlap")
    shown = [row for row in section.rows if not is_heading(row, section)]
    assert shown == [
        (without_fabric(case["case"]), str(case["chunks"]), f"{case['overlap']:.1%}")
        for case in run.result["cases"]
    ]
    assert [chunks for _, chunks, _ in shown] == ["4", "16"] * 2


EXECUTION = st.tuples(*[st.booleans()] * 3)


@given(executions=st.lists(EXECUTION, min_size=1, max_size=6), disturbed_counted=st.booleans())
def test_executions_that_count_are_those_of_the_verdict(
    run: RunData, executions: list[tuple[bool, bool, bool]], disturbed_counted: bool
) -> None:
    (case, *_), numbers = run.cases.values(), np.arange(len(executions))
    complete, warmup, disturbed = np.array(executions).T
    marked = {"complete": complete, "warmup": warmup, "disturbed": disturbed}
    columns = {**marked, "number": numbers, "completion_s": numbers.astype(float)}
    transfers = {name: np.resize(column, len(numbers)) for name, column in case.transfers.items()}
    changed = replace(
        case,
        disturbed_counted=disturbed_counted,
        executions=columns,
        transfers={**transfers, "repeat": numbers},
    )
    later = [number for number in numbers if complete[number] and not warmup[number]]
    counted = [number for number in later if disturbed_counted or not disturbed[number]]
    wanted = counted or numbers[complete].tolist()
    assert changed.completion_s.tolist() == changed.measured["repeat"].tolist() == wanted


@pytest.mark.parametrize("faults", [False, True])
def test_a_run_tells_whose_disturbed_executions_count(tmp_path: Path, faults: bool) -> None:
    place = stored_run(tmp_path, faults=faults) / "result.json"
    result = json.loads(place.read_text())
    judged, *_ = result["failures" if faults else "cases"]
    judged["disturbed_counted"] = ["degraded"] if faults else True
    place.write_text(json.dumps(result))
    cases = read_run(place.parent).cases
    counted = [name for name, case in cases.items() if case.disturbed_counted]
    assert counted == [judged["case"] + "/degraded" * faults]


def test_steps_end_as_measured_and_as_modeled(run: RunData) -> None:
    for case in run.cases.values():
        found = steps(case)
        assert [step.measured_s for step in found] == pytest.approx(
            [OFF * step.modeled_s for step in found]
        )
        assert sum(step.transfers for step in found) == len(case.one["transfer"])
        assert max(step.modeled_s for step in found) == pytest.approx(max(case.arrival_s))


def test_a_steps_bottleneck_needs_the_time_of_its_bytes(run: RunData) -> None:
    case = run.cases["rail-only/all-reduce/hierarchical"]
    slowest = max(steps(case), key=lambda step: step.seconds)
    assert slowest.busiest.endswith(("rail0", "rail1")) or slowest.busiest.startswith("rail")
    size_bytes = int(case.one["size_bytes"].max())
    nic_bps = 400e9 / 20_000
    assert slowest.seconds == pytest.approx(size_bytes * 8 / nic_bps, rel=0.5)


@given(st.lists(st.integers(0, 5), max_size=30))
def test_each_gpus_transfers_are_numbered_in_order(sources: list[int]) -> None:
    seen: dict[int, int] = {}
    whole, lanes = np.array(sources, int), np.tile([0, 1], len(sources))
    numbers = step_numbers(whole, np.zeros_like(whole))
    for source, number in zip(sources, numbers, strict=True):
        assert number == seen.get(source, 0)
        seen[source] = number + 1
    in_parts = step_numbers(np.repeat(whole, 2), lanes)
    assert in_parts.tolist() == np.repeat(numbers, 2).tolist()


def test_bytes_of_pairs_are_those_of_the_schedule(run: RunData) -> None:
    for case in run.cases.values():
        matrix = pair_bytes(case)
        assert matrix.sum() == case.one["size_bytes"].sum()
        assert np.diagonal(matrix).sum() == 0


def test_the_use_of_a_link_is_its_share_of_the_rate(run: RunData) -> None:
    (case, *_) = run.cases.values()
    link = case.topology.links[0]
    used = link_use([case])[link.name]
    seconds = case.executions["completion_s"].sum()
    assert used.size_bytes == case.executions.get("sent", [used.size_bytes])[0]
    assert used.share == pytest.approx(used.size_bytes * 8 / (link.rate_bps * seconds))


def test_a_strip_has_all_bytes_of_all_executions(run: RunData) -> None:
    case = run.cases[f"rail-only/{Collective.ALL_TO_ALL}/direct"]
    end_s = (case.ends_ns.max() - case.begun_ns) / 1e9
    rates = sent_rates(case)
    sent = rates.sum() * end_s / rates.shape[1] / 8
    assert sent == pytest.approx(case.transfers["size_bytes"].sum())


def test_the_use_of_a_moved_link_is_that_of_its_lower_end(run: RunData) -> None:
    (case, *_) = run.cases.values()
    spec, counters = case.topology.spec, case.counters
    more = counters["sent_bytes"] * np.where(counters["link"] == "d0g0--rail0", 3, 1)
    moved = build_topology(spec, exchanged(straight_cross_connects(spec), Gpu(0, 0), (1, 0)))
    used = link_use([replace(case, topology=moved, counters={**counters, "sent_bytes": more})])
    assert set(used) == set(moved.link_by_name)
    assert used["d0g0--rail1"].size_bytes == 3 * used["d0g1--rail0"].size_bytes > 0


def test_a_picture_is_saved_in_every_format(page: Article, tmp_path: Path) -> None:
    (picture, *_) = page.pictures
    files = picture.save(tmp_path, list(FORMATS))
    starts = {file.name: file.read_bytes()[:4] for file in files}
    assert starts == {
        "completion.svg": b"<?xm",
        "completion.png": b"\x89PNG",
        "completion.pdf": b"%PDF",
    }


def test_the_command_writes_the_page_and_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = stored_run(tmp_path, faults=True)
    target = tmp_path / "new" / "r.html"
    report([folder.name], target, "svg", None, tmp_path)
    page, *figures = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert page == target
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert {file.suffix for file in figures} == {".svg"}
    report([folder.name], tmp_path / "alone" / "r.html", "", None, tmp_path)
    assert [file.name for file in (tmp_path / "alone").iterdir()] == ["r.html"]
    assert all(file.parent == tmp_path / "new" / "r-figures" / folder.name for file in figures)


@pytest.mark.parametrize(
    ("runs", "sweep", "named"),
    [
        (["a", "b"], None, "a"),
        (["a"], "night", "a"),
        (["a", "b"], "night", "a"),
        ([], "night", "night"),
    ],
)
def test_a_page_is_named_by_its_first_run_or_its_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: list[str], sweep: str | None, named: str
) -> None:
    before = [sweep, "a and b" if len(runs) == 2 else None]
    articles = [Article("", name, "", ()) for name in (*filter(None, before), *runs)]
    monkeypatch.setattr("commands.report.articles_about", lambda *_: articles)
    monkeypatch.chdir(tmp_path)
    report(runs, None, "", sweep, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [f"{named}.html"]


def test_a_damaged_table_is_refused_in_a_sentence_alone(tmp_path: Path) -> None:
    """DuckDB prints pages about a data base that is open when the program ends."""
    sealed(stored_run(tmp_path), TRANSFERS).write_bytes(b"x")
    program = [sys.executable, "-P", "-m", "commands", "report", "latest", f"--store={tmp_path}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(program, capture_output=True, cwd=tmp_path, env=environment, text=True)
    assert "records cannot be read: " in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("draw", [report, timeline])
def test_a_topology_without_links_is_damaged(
    draw: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for place in stored_run(tmp_path).glob("*/topology.json"):
        place.write_text(json.dumps({**json.loads(place.read_text()), "links": []}))
    runs: Any = ["latest"] if draw is report else "latest"
    with pytest.raises(InputError, match="cannot be parsed"):
        draw(runs, store=tmp_path)


def test_other_formats_and_damaged_runs_are_refused(tmp_path: Path) -> None:
    folder = stored_run(tmp_path)
    with pytest.raises(InputError, match="must be among svg, png, pdf, got gif"):
        report([folder.name], None, "gif", None, tmp_path)
    sealed(folder, TRANSFERS).write_bytes(b"PAR1")
    with pytest.raises(InputError, match="records cannot be read"):
        report([folder.name], tmp_path / "r.html", "", None, tmp_path)
    assert not (tmp_path / "r.html").exists()


def test_a_run_that_is_not_there_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = stored_run(tmp_path).name
    with pytest.raises(InputError, match="nonexist"):
        report([name, "nonexist"], None, "", None, tmp_path)
    assert capsys.readouterr().err == ""


def test_a_full_standard_output_is_not_taken_for_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commands.report.out.print", Mock(side_effect=OSError(ENOSPC, "full")))
    with pytest.raises(OSError, match="full"):
        report([stored_run(tmp_path).name], tmp_path / "r.html", "", None, tmp_path)


def test_two_runs_are_compared_first(tmp_path: Path) -> None:
    for scenario, off in (("first", 1.0), ("other", 1.02)):
        stored_run(tmp_path, scenario=scenario, executions=5, off=off)
    names = [folder.name for folder in stored_runs(tmp_path)]
    article = next(articles_about(tmp_path, names, None))
    assert article.title == "Comparison"
    assert article.answer.startswith("4 of 4 cases differ by more than their executions do: ")
    assert "rail-only/all-to-all/direct: B is 2.0% slower" in article.answer
    (picture,) = article.pictures
    axes = picture.figure.axes[0]
    assert axes.dataLim.xmax < 0.98 * axes.get_xlim()[1]  # no mark is cut
    Elements(render([article]))


def test_cases_of_other_work_are_not_counted_among_those_that_differ(tmp_path: Path) -> None:
    for scenario in ("first", "other"):
        stored_run(tmp_path, scenario=scenario, executions=5)
    result = compared(tmp_path, *(folder.name for folder in stored_runs(tmp_path)))
    result["cases"][0].update(other_work=["gpus: 4 against 8"], difference="not the same work")
    told = (
        "0 of 3 cases differ by more than their executions do; 1 cannot be compared (other work)."
    )
    assert comparison_article(result).answer == told


@pytest.mark.parametrize(
    ("executions", "checked", "told"),
    [
        (1, 0, "0 of 4 cases can be compared (few repeats)."),
        (1, 1, "0 of 4 cases can be compared (checked, few repeats)."),
        (5, 4, "0 of 4 cases can be compared (checked)."),
    ],
)
def test_what_cannot_be_judged_is_not_said_to_be_the_same(
    tmp_path: Path, executions: int, checked: int, told: str
) -> None:
    for scenario, off in (("first", 1.0), ("other", 2.0)):
        place = stored_run(tmp_path, scenario=scenario, executions=executions, off=off)
        result = json.loads((place / "result.json").read_text())
        for case in result["cases"][:checked]:
            case["data_is_right"] = True
        (place / "result.json").write_text(json.dumps(result))
    found = compared(tmp_path, *(folder.name for folder in stored_runs(tmp_path)))
    assert comparison_article(found).answer == told


def test_cases_of_other_work_have_no_ratio() -> None:
    case = {
        **{"case": "a/b", "difference": "not the same work", "ratio": None},
        **{"other_work": ["gpus: 4 against 8"], "modeled_s": [1, 2], "ratio_to_model": [1, None]},
        "measured_s": [{"median": 1.0, "min": None, "max": None}] * 2,
        **{"verdicts": ["pass", "warn"], "reasons": [[], []]},
        **{"notes": [[], []], "doubts": [[], []]},
    }
    runs = [{"run_id": name, "verdict": "pass"} for name in "ab"]
    warning = "the machines differ in cores: 2 against 4"
    both = {"cases": [case], "runs": runs, "warnings": [warning]}
    article = comparison_article({**both, "only_in_first": ["c/d"], "only_in_second": []})
    assert article.answer == "0 of 1 cases can be compared (other work)."
    _, both_runs, others = sections_of(article)
    assert [" ".join(map(str, row)) for row in both_runs.rows] == [
        "a",
        "b 1.000 s 1.000 s other work - 1.0000 - pass warn",
    ]
    assert [str(remark) for remark in others.remarks] == [
        f"warning: {warning}",
        "warning: a/b has other work, not compared: gpus: 4 against 8",
        "warning: in A only: c/d",
    ]


def test_a_sweep_has_a_picture_for_each_case(run: RunData) -> None:
    points = [
        {
            "point": 1,
            "parameters": {"fabric.domains": domains, "seed": seed},
            "run_id": "r",
            "verdict": "pass",
            "failures": [],
            "cause": "",
            "cases": run.result["cases"],
        }
        for domains in (2, 8)
        for seed in ("a", "b")
    ]
    lost: dict[str, Any] = {
        "point": 5,
        "parameters": {"fabric.domains": 16, "seed": "a"},
        "run_id": None,
        "verdict": "fail",
        "failures": [],
        "cases": [],
        "cause": "<it died>",
    }
    sweep = {"scenario": "quick", "sweep": "night", "verdict": "fail", "points": [*points, lost]}
    article = sweep_article(sweep)
    assert article.answer == (
        "4 of 5 points have a result. Measured over modeled is 1.010. The verdict is fail."
    )
    assert len(article.pictures) == len(run.result["cases"])
    lines = article.pictures[0].figure.axes[0].lines
    measured = [line for line in lines if line.get_marker() in ("o", "s")]
    assert [np.asarray(line.get_xdata()).tolist() for line in measured] == [[2, 8], [2, 8]]
    assert "&lt;it died&gt;" in render([article])


def _swept(run: RunData, *scales: int) -> Article:
    """The article of a sweep over sizes, of cases whose times are as many times longer."""
    return _swept_over([{"workloads.0.size_scale": scale} for scale in scales], run, scales)


def _swept_over(
    parameters: Sequence[Mapping[str, Any]], run: RunData, scales: Sequence[float]
) -> Article:
    points = [
        {
            "point": 1,
            "parameters": chosen,
            "run_id": "r",
            "verdict": "pass",
            "failures": [],
            "cause": "",
            "cases": [_longer(case, scale) for case in run.result["cases"]],
        }
        for chosen, scale in zip(parameters, scales, strict=True)
    ]
    return sweep_article({"scenario": "q", "sweep": "s", "verdict": "pass", "points": points})


def _longer(case: dict[str, Any], times: float) -> dict[str, Any]:
    measured = {key: times * case["measured_s"][key] for key in ("median", "min", "max")}
    sizes = {"bytes": times * case["bytes"], "modeled_s": times * case["modeled_s"]}
    return {**case, **sizes, "measured_s": {**case["measured_s"], **measured}}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["rail-only", "4 MB"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("domains"), inner),
)


@settings(max_examples=20)
@given(values=st.lists(VALUES, min_size=2, max_size=3), is_first=st.booleans())
def test_a_sweep_is_over_values_of_any_kind(
    run: RunData, values: list[object], is_first: bool
) -> None:
    keys = ("fabric", "seed") if is_first else ("seed", "fabric")
    parameters = [{key: value if key == "fabric" else 1 for key in keys} for value in values]
    times, *_ = _swept_over(parameters, run, [1.0] * len(values)).pictures
    (axes,) = times.figure.axes
    shown = [value if isinstance(value, str) else json.dumps(value) for value in values]
    labels = [label.get_text() for label in axes.get_xticklabels()]
    values_shown = [shortened(value, VALUE_LETTERS) for value in dict.fromkeys(shown)]
    assert labels == (values_shown if is_first else ["1"])
    if not is_first:
        _, named = axes.get_legend_handles_labels()
        assert {shortened(f"fabric = {value}") for value in shown} < set(named)


def test_pictures_of_a_workload_are_neighbours_with_one_scale(run: RunData) -> None:
    pictures = _swept(run, 1, 2, 4).pictures[: len(run.result["cases"])]
    names = [picture.sentence.partition(" over ")[0] for picture in pictures]
    workloads = [name.partition("/")[2] for name in names]
    assert workloads == sorted(workloads, key=workloads.index)
    assert names[0].startswith("rail-only/")
    assert names[1].startswith("rail-optimized/")
    tops = [picture.figure.axes[0].get_ylim() for picture in pictures]
    assert tops[0::2] == tops[1::2]
    assert all(bottom == 0 for bottom, _ in tops)


def test_a_sweep_over_sizes_has_bus_bandwidths_and_logarithmic_axes(run: RunData) -> None:
    article = _swept(run, 1, 10, 1000)
    times, *_, bandwidths = article.pictures
    axes = times.figure.axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert "mathdefault" not in times.svg("a")
    assert bandwidths.name == "bus-bandwidth"
    lines = [line for line in bandwidths.figure.axes[0].lines if np.size(line.get_xdata()) == 3]
    assert len(lines) == 2 * len(run.result["cases"])
    assert "bus-bandwidth" not in {picture.name for picture in _swept(run, 1).pictures}


def test_bus_bandwidths_are_over_the_parameter_that_changes_sizes(run: RunData) -> None:
    # Sizes are rounded up to whole elements of each slice, of which larger fabrics have more.
    settings = {(2, "4 MB"): 1.0, (2, "8 MB"): 2.0, (3, "4 MB"): 1.0001, (3, "8 MB"): 2.0001}
    keys = ("fabric.domains", "workloads.0.size")
    parameters = [dict(zip(keys, values, strict=True)) for values in settings]
    article = _swept_over(parameters, run, list(settings.values()))
    (bandwidths,) = (one for one in article.pictures if one.name == "bus-bandwidth")
    names = {str(line.get_label()) for line in bandwidths.figure.axes[0].lines}
    cases = [case["case"] for case in run.result["cases"]]
    series = {f"{case}, fabric.domains = {domains}" for case in cases for domains in (2, 3)}
    assert series < names
    assert not any("size" in name for name in names)
    alone = _swept_over([{"fabric.domains": domains} for domains in (2, 3)], run, [1.0, 1.0001])
    assert "bus-bandwidth" not in {picture.name for picture in alone.pictures}


def test_a_page_is_about_something(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name a RUN, or --sweep NAME"):
        report(None, None, "", None, tmp_path)
    with pytest.raises(InputError, match="has no sweeps"):
        report(None, None, "", "night", tmp_path)


def test_iterations_have_their_parts_and_no_bandwidth(run: RunData) -> None:
    none = dict.fromkeys(("algbw_gbyte_per_s", "busbw_gbyte_per_s"))
    reduction = [
        {"what": "data", "full": 24, "reduced": 2},
        {"what": "pipeline", "full": 8, "reduced": 8},
    ]
    parts = {"parts_s": {"tensor": {"measured": 1.5, "modeled": 1.25}}, "reduction": reduction}
    cases = [{**case, **none, "iteration": parts} for case in run.result["cases"]]
    text = render([run_article(replace(run, result={**run.result, "cases": cases}), {})])
    assert "Bus bandwidth" not in text
    assert "Training iterations: compute, traffic that it does not hide, waiting" in text
    assert "1.250" in text
    configurations = len({case["algorithm"] for case in cases})
    assert text.count("reduced: data 24 -&gt; 2<") == configurations


def test_the_machine_is_shown_below_the_limits_that_judge_it(run: RunData) -> None:
    section = fidelity_section(run.result)
    assert [row[0] for row in section.rows[:2]] == ["warn above", "fail above"]
    column = section.columns.index("latest start")
    assert [row[column] for row in section.rows[:2]] == ["1.0%", "5.0%"]
    assert [row[0] for row in section.rows[2:]] == [case["case"] for case in run.result["cases"]]
    assert all(len(row) == len(section.columns) for row in section.rows)


def test_calibrated_links_are_shown_by_class(run: RunData) -> None:
    good = {
        **{"kind": "nic-link", "nominal_bps": 2e7, "rate_error": 0.001, "latency_s": 2e-6},
        **{"gap_error_p95": 0.01, "trials": [{"paused_s": 0.0}], "outcome": "right"},
    }
    late = {**good, "latency_s": 5e-6, "rate_error": -0.02, "outcome": "inconclusive"}
    late["trials"] = [{"paused_s": 0.004}, {"paused_s": 0.012}]
    uplink = {**good, "kind": "uplink", "gap_error_p95": None}
    calibration = [{"fabric": "rail-only", "links": [good, late, uplink]}]
    page = run_article(replace(run, result={**run.result, "calibration": calibration}), {})
    (section,) = (
        one for one in sections_of(page) if one.title.startswith("Links, each measured alone")
    )
    (fabric,), *rows = section.rows
    assert fabric == "rail-only"
    assert [" ".join(map(str, row)) for row in rows] == [
        "nic-link 20 Mbit/s -2.00% 5 us 1.0% 2 12 ms inconclusive",
        "uplink 20 Mbit/s +0.10% 2 us - 1 0 ms right",
    ]
    assert all(len(row) == len(section.columns) for row in rows)


def _answer_of(run: RunData, **changed: Any) -> Article:
    """The article of a run whose first case is changed."""
    first, *others = run.result["cases"]
    worse = {**first, **changed}
    verdict = worse["verdict"]
    result = {**run.result, "cases": [worse, *others], "verdict": verdict}
    return run_article(replace(run, result=result), {})


def test_cases_that_are_not_judged_are_left_out_of_the_headline_and_the_residuals(
    run: RunData,
) -> None:
    article = _answer_of(run, ratio=729.0, data_is_right=True, generator="scapy")
    assert f"Measured over modeled is {OFF:.3f}." in article.answer
    (residuals,) = (picture for picture in article.pictures if picture.name == "residuals")
    assert len(residuals.figure.axes[0].get_yticks()) == len(run.result["cases"]) - 1
    (times,) = (picture for picture in article.pictures if picture.name == "completion")
    assert times.figure.axes[0].texts[0].get_text() == "- pass"
    none = [{**case, "data_is_right": True} for case in run.result["cases"]]
    page = run_article(replace(run, result={**run.result, "cases": none}), {})
    assert "Measured over modeled" not in page.answer
    assert not {"residuals", "bus-bandwidth"} & {picture.name for picture in page.pictures}
    swept = _swept(replace(run, result={**run.result, "cases": none}), 1, 10)
    assert "bus-bandwidth" not in {picture.name for picture in swept.pictures}


def _broken_off(case: Mapping[str, Any]) -> dict[str, Any]:
    """The case if all its executions had broken off after a tenth of a second."""
    measured = {**case["measured_s"], **dict.fromkeys(("median", "min", "max"), 0.1)}
    values = {"values": [0.1] * 6, "interval": {"low": 0.1, "high": 0.1, "confidence": 1}}
    changed = {"measured_s": {**measured, **values}, "ratio": 0.1 / case["modeled_s"]}
    none = dict.fromkeys(("algbw_gbyte_per_s", "busbw_gbyte_per_s"))
    return {**case, **none, **changed, "incomplete": True, "verdict": "fail"}


def test_times_of_what_broke_off_are_no_measurements(run: RunData) -> None:
    broken_off = _broken_off(run.result["cases"][0])
    article = _answer_of(run, **broken_off)
    assert f"Measured over modeled is {OFF:.3f}." in article.answer
    pictures = {picture.name: picture for picture in article.pictures}
    assert len(pictures["residuals"].figure.axes[0].get_yticks()) == len(run.result["cases"]) - 1
    times = pictures["completion"]
    assert times.figure.axes[0].texts[0].get_text() == "- fail"
    drawn = [np.asarray(line.get_xdata()) for line in times.figure.axes[0].lines]
    assert 0.1 not in np.concatenate(drawn)
    assert "0.100 s" not in times.sentence
    broken = {**run.result, "cases": [broken_off]}
    for section, names in (
        (cases_section(broken), ("measured", "spread", "ratio", "busbw")),
        (next(work_sections(broken)), ("emulated", "real")),
        (executions_section(broken["cases"]), ("counted", "median ±")),
    ):
        shown = [section.rows[-1][section.columns.index(name)] for name in names]
        assert shown == ["-"] * len(names)


def test_a_sweeps_curves_leave_out_what_broke_off(run: RunData) -> None:
    cases = run.result["cases"]
    whole = {"run_id": "r", "verdict": "pass", "failures": [], "cause": "", "cases": cases}
    broken_off = {**whole, "verdict": "fail", "cases": [_broken_off(case) for case in cases]}
    points = [
        {**point, "point": seed, "parameters": {"seed": seed}}
        for seed, point in ((1, whole), (2, broken_off), (3, whole))
    ]
    article = sweep_article({"scenario": "q", "sweep": "s", "verdict": "fail", "points": points})
    assert f"Measured over modeled is {OFF:.3f}." in article.answer
    axes = article.pictures[0].figure.axes[0]
    (measured,) = (line for line in axes.lines if line.get_marker() == "o")
    assert np.asarray(measured.get_xdata()).tolist() == [1, 3]
    assert axes.get_yscale() == "linear"
    alone = {**points[1], "cause": "it broke off"}
    only = sweep_article({"scenario": "q", "sweep": "s", "verdict": "fail", "points": [alone]})
    assert only.answer == "1 of 1 points have a result. The verdict is fail."


def test_a_degraded_phase_that_broke_off_has_no_slowdown(broken: RunData) -> None:
    (failure,) = broken.result["failures"]
    told = failure_article(broken)
    assert "times as long" in told.answer
    assert "in the degraded phase" in told.answer
    changed = {**failure, "degraded_s": 0.1, "ratio": 0.05, "incomplete": True, "verdict": "fail"}
    told = failure_article(replace(broken, result={**broken.result, "failures": [changed]}))
    assert "times as long" not in told.answer
    assert "in the degraded phase" not in told.answer
    (phases,) = (picture for picture in told.pictures if picture.name == "completion")
    shown = [text.get_text() for text in phases.figure.axes[0].texts]
    assert [ratio.partition(" ")[0] == "-" for ratio in shown] == [False, True, False]


def test_a_verdict_has_its_reasons(run: RunData, broken: RunData, failed: Article) -> None:
    reasons = [f"execution {number} did not complete" for number in range(5)]
    doubts = ["agents waited for a core"]
    article = _answer_of(run, verdict="fail", reasons=[*doubts, *reasons], doubts=doubts)
    name = run.result["cases"][0]["case"]
    told = "; ".join(f"{name}: {reason}" for reason in reasons[:3])
    assert article.answer.endswith(f"The verdict is fail: {told}; 2 more in the tables.")
    page = render([article])
    assert all(f"fail: {name}: {reason}" in page for reason in reasons)
    (faults,) = (one for one in sections_of(failed) if one.title == "Failure experiments")
    remarks = "\n".join(map(str, faults.remarks))
    assert all(
        reason in remarks for failure in broken.result["failures"] for reason in failure["reasons"]
    )


@pytest.mark.parametrize("table", [TRANSFERS, EXECUTIONS], ids=lambda table: table.name)
@pytest.mark.parametrize("as_folder", [False, True])
def test_a_run_without_a_table_is_a_sentence(
    tmp_path: Path, table: RawTable, as_folder: bool
) -> None:
    folder = stored_run(tmp_path)
    sealed(folder, table).unlink()
    if as_folder:
        sealed(folder, table).mkdir()
    with pytest.raises(InputError, match="no rows of rail-"):
        read_run(folder)


@pytest.mark.parametrize("median", ["1", 10**400, float("nan"), float("inf"), None])
def test_a_time_that_is_no_number_is_a_sentence(tmp_path: Path, median: object) -> None:
    folder = stored_run(tmp_path)
    result = json.loads((folder / "result.json").read_text())
    result["cases"][0]["measured_s"]["median"] = median
    (folder / "result.json").write_text(json.dumps(result))
    with pytest.raises(InputError, match="cannot be parsed"):
        read_run(folder)


@pytest.mark.parametrize("slowest_ms", [15.0, 55.0, 700.0, 1e6])
def test_times_of_transfers_have_few_plain_labels(run: RunData, slowest_ms: float) -> None:
    (case, *_) = run.cases.values()
    count = len(case.transfers["transfer"])
    taken_ns = np.linspace(5e6, slowest_ms * 1e6, count).astype(int)
    times = {"started_ns": np.zeros(count, int), "arrived_ns": taken_ns}
    changed = replace(case, transfers={**case.transfers, **times})
    picture = transfer_times("rail-only", [changed])
    assert "mathdefault" not in picture.svg("a")
    low, high = picture.figure.axes[0].get_xlim()
    shown = [tick for tick in picture.figure.axes[0].get_xticks() if low <= tick <= high]
    assert 2 <= len(shown) <= 9


@pytest.mark.parametrize("cases", [1, 27])
def test_times_of_many_cases_have_room_beside_their_legend(run: RunData, cases: int) -> None:
    (case, *_) = run.cases.values()
    figure = transfer_times("rail-only", [case] * cases).figure
    figure.draw_without_rendering()
    axes, legend = figure.axes[0].get_window_extent(), figure.legends[0].get_window_extent()
    assert axes.height > 1.5 * figure.dpi
    assert axes.y1 <= legend.y0
    assert legend.y1 <= figure.bbox.y1


def test_as_many_percent_of_transfers_take_at_most_a_time_as_do(run: RunData) -> None:
    (case, *_) = run.cases.values()
    repeat, taken_ms = case.measured["repeat"][:4], np.array([1, 2, 4, 8])
    times = {"started_ns": np.ones(4, int), "arrived_ns": taken_ms * 10**6 + 1, "repeat": repeat}
    few = replace(case, transfers=times)
    (line,) = transfer_times("rail-only", [few]).figure.axes[0].get_lines()
    ms, percent = np.asarray(line.get_data())
    assert [percent[ms <= most].max() for most in taken_ms] == [25, 50, 75, 100]


@pytest.mark.parametrize("shown", [1, 2])
def test_steps_have_whole_numbers(run: RunData, shown: int) -> None:
    (case, *_) = run.cases.values()
    picture = step_times(case, steps(case)[:shown], "x")
    assert all(tick.is_integer() for tick in picture.figure.axes[0].get_xticks())
    assert f"has {shown} step{'s' * (shown > 1)};" in picture.sentence


def test_markers_of_near_values_are_below_the_top(run: RunData) -> None:
    (case, *_) = run.cases.values()
    (step, *_) = steps(case)
    judged = [{**one, "ratio": 1.001} for one in run.result["cases"][:1]]
    near = replace(step, measured_s=1.001 * step.modeled_s)
    for picture in (step_times(case, [near], "x"), bus_bandwidth(judged)):
        (axes,) = picture.figure.axes
        assert axes.get_ylim()[0] == 0
        assert axes.get_ylim()[1] > 1.09 * axes.dataLim.ymax > 0


@pytest.mark.parametrize("letters", [1, 80, 700])
def test_names_of_any_length_leave_room_for_their_picture(run: RunData, letters: int) -> None:
    name = "rail-only/jobs/" + letters * "x"
    cases = [{**case, "case": name} for case in run.result["cases"]]
    (whole, *_) = run.cases.values()
    for figure in (
        completion(cases).figure,
        bus_bandwidth(cases).figure,
        transfer_times("rail-only", [replace(whole, name=name)]).figure,
    ):
        figure.draw_without_rendering()
        (axes,) = figure.axes
        assert axes.get_window_extent().width > 0.25 * figure.bbox.width
        assert min(label.get_window_extent().x0 for label in axes.get_yticklabels()) >= 0
        assert figure.legends[0].get_window_extent().x1 <= figure.bbox.x1


def test_libraries_of_the_environment_are_words() -> None:
    repetition = Repetition("", "", {"libraries": {"ryu": "4.34", "scapy": "2.8.0"}})
    page = render([Article("run", "run", "", (), repetition)])
    assert "<td>ryu 4.34, scapy 2.8.0</td>" in page


def test_a_single_completion_time_is_said_once(run: RunData) -> None:
    (case, *_) = run.result["cases"]
    assert completion([case]).sentence.count(case["case"]) == 1


def test_lines_of_queues_that_change_no_more_reach_the_executions_end(run: RunData) -> None:
    (case, *_) = run.cases.values()
    (number, *_), (start_ns, *_) = case.executions["number"], case.executions["start_ns"]
    one, two = np.zeros(1, int), np.zeros(2, int)
    pair = dict.fromkeys(("source", "lane", "queue_pair", "ns", "sent_bytes"), one)
    pairs = {**pair, "destination": one + 1, "repeat": one + number}
    ports = {"link": np.array(["d0g0--rail0"] * 2), "receiver": np.array(["d0g0"] * 2)}
    counts = {"backlog_bytes": two + 9000, "dropped_packets": np.array([0, 1])}
    queues = {**ports, **counts, "ns": start_ns + np.array([1000, 2000])}
    figure = transport_picture(replace(case, queue_pairs=pairs, queues=queues), "x").figure
    lines = [line for axes in figure.axes for line in axes.get_lines()]
    ends = [np.asarray(line.get_data())[:, -1].tolist() for line in lines]
    end_s = case.executions["completion_s"][0]
    assert ends == [[end_s, 0], [end_s, 9], [end_s, 1]]
    ticks = figure.axes[-1].get_yticks()
    assert np.array_equal(ticks, np.rint(ticks))


def test_queues_of_earlier_executions_are_not_drawn(run: RunData) -> None:
    (case, *_) = run.cases.values()
    number, start_ns = (case.executions[column][-1] for column in ("number", "start_ns"))
    one, many = np.zeros(1, int), np.zeros(4, int)
    pair = dict.fromkeys(("source", "lane", "queue_pair", "ns", "sent_bytes"), one)
    pairs = {**pair, "destination": one + 1, "repeat": one + number}
    ports = {"link": np.array(["d0g0--rail0"] * 4), "receiver": np.array(["d0g0"] * 4)}
    counts = {"backlog_bytes": np.array([9**9, 0, 9000, 0]), "dropped_packets": many}
    queues = {**ports, **counts, "ns": start_ns + np.array([-2000, -1000, 1000, 2000])}
    (_, axes) = transport_picture(replace(case, queue_pairs=pairs, queues=queues), "x").figure.axes
    (line,) = axes.get_lines()
    assert np.asarray(line.get_data())[1].tolist() == [0, 9, 0, 0]
    assert axes.get_ylim()[1] < 10


def test_queue_pairs_that_send_most_come_first_however_often_sampled(run: RunData) -> None:
    (case, *_) = run.cases.values()
    seconds, sent = [1.0, 2.0, 2.0, 2.001, 2.002], [0, 9000, 0, 100, 200]
    same = dict.fromkeys(("source", "lane", "queue_pair"), np.zeros(5, int))
    samples = {"ns": np.array(seconds) * 1e9, "sent_bytes": np.array(sent)}
    ends = {"destination": np.array([2, 2, 1, 1, 1]), "repeat": np.zeros(5, int)}
    ends["repeat"] += case.executions["number"][0]
    figure = transport_picture(replace(case, queue_pairs={**same, **samples, **ends}), "x").figure
    labels = [line.get_label() for line in figure.axes[0].get_lines()]
    gpus = [gpu.name for gpu in case.topology.job_gpus]
    assert labels == [f"{gpus[0]} to {gpus[2]}", f"{gpus[0]} to {gpus[1]}"]


def test_a_fault_without_probed_pairs_says_so(broken: RunData) -> None:
    (failure, *_) = broken.result["failures"]
    (during,) = (case for name, case in broken.cases.items() if name.endswith("/during_fault"))
    below = fault_strip(failure, during, {}, "x").figure.axes[1]
    assert [label.get_text() for label in below.get_yticklabels()] == ["no pair probed"]


@pytest.mark.parametrize("times", [1, 100])
@pytest.mark.parametrize("number", [3, 12])
def test_values_of_a_sweep_do_not_cover_each_other(run: RunData, number: int, times: int) -> None:
    parameters = [{"fabric.nic_rate": times * f"{value}00 Gbit/s"} for value in range(number)]
    figure = _swept_over(parameters, run, [1] * number).pictures[0].figure
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    assert len(boxes) == number
    assert all(box.x1 <= following.x0 for box, following in pairwise(boxes))
    assert min(box.y0 for box in boxes) >= 0
    assert figure.axes[0].get_window_extent().height > 0.3 * figure.bbox.height


@pytest.mark.parametrize("dpi", [100, 300])
def test_names_of_a_sweeps_lines_are_not_cut_off(run: RunData, dpi: int) -> None:
    recoveries = ("go-back-n", "selective-repeat")
    parameters = [{"seed": 1, "fabric.roce.recovery": recovery} for recovery in recoveries]
    figure = _swept_over(parameters, run, (1, 1)).pictures[0].figure
    figure.set_dpi(dpi)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert legend.get_window_extent().x1 <= figure.bbox.x1
    assert figure.axes[0].get_window_extent().height > 1.2 * dpi


def test_a_sweeps_picture_has_room_for_the_lines_that_it_draws(run: RunData) -> None:
    names = [f"a-name-as-long-as-a-column-{number}" for number in range(7)]
    parameters = [{"seed": 1, "fabric.roce.recovery": name} for name in names]
    six, seven = (_swept_over(parameters[:shown], run, [1] * shown).pictures[0] for shown in (6, 7))
    assert six.figure.get_figheight() == seven.figure.get_figheight()
    assert seven.sentence.endswith("Not drawn: 1 more setting of the other parameters.")


@pytest.mark.parametrize(("most", "named"), [(0, [""]), (1, [" queue pair 0", " queue pair 1"])])
def test_each_of_several_queue_pairs_has_its_number(
    run: RunData, most: int, named: list[str]
) -> None:
    (case, *_) = run.cases.values()
    zeros = np.zeros(most + 1, int)
    samples = dict.fromkeys(("source", "lane", "repeat", "ns", "sent_bytes"), zeros)
    numbers = {"destination": zeros + 1, "queue_pair": np.arange(most + 1)}
    names = [name for name, _ in queue_pairs(replace(case, queue_pairs={**samples, **numbers}), 0)]
    one, other, *_ = case.topology.job_gpus
    assert names == [f"{one.name} to {other.name}{number}" for number in named]


def test_a_fabric_on_which_nothing_arrived_has_no_times_of_transfers(run: RunData) -> None:
    lost = {
        name: replace(case, transfers={**case.transfers, "arrived_ns": case.transfers["lane"] * 0})
        for name, case in run.cases.items()
        if name.startswith("rail-only/")
    }
    article = run_article(replace(run, cases={**run.cases, **lost}), {})
    names = [one.name for one in article.pictures if one.name.startswith("transfer-times")]
    assert names == ["transfer-times-rail-optimized"]
