"""The article about a run: the answer, then all pictures and tables."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from results.report.article import Article, Section
from results.report.data.analysis import LinkUse, Step, failed_parts, link_use, steps
from results.report.data.fault_phases import phases_as_cases
from results.report.data.run_data import CaseData, RunData
from results.report.drawings.charts import (
    bus_bandwidth,
    completion,
    heat_map,
    ratios,
    step_times,
    transfer_times,
)
from results.report.drawings.fabric_picture import fabric_picture
from results.report.drawings.fault_strip import fault_strip, sentence
from results.report.drawings.link_throughput import link_throughput
from results.report.drawings.pictures import Picture
from results.report.machine_sections import calibration_section, fidelity_section
from results.store.runs import BASELINE, DEGRADED, DURING
from results.tables.measured.run import human_bytes, is_checked, slowdown_in_words
from results.tables.style import number_or_dash, range_of

Lost = Mapping[str, Mapping[str, Sequence[float]]]
"""Seconds at which probes were lost, by case and pair."""
MOST_STEPS = 10
# The tables have all reasons; the answer has this many.
MOST_REASONS = 3


def run_article(run: RunData, lost: Lost) -> Article:
    """Return the article about a run: its answer, and sections with its pictures and tables."""
    scenario = str(run.result["scenario"])
    sentences = " ".join(answer(run.result))
    return Article(scenario, run.run_id, sentences, list(_sections(run, lost)), run)


def answer(result: Mapping[str, Any]) -> Iterator[str]:
    """State the findings of a run: effects first, then the distance from the model, the verdict."""
    if result["slowdowns"]:
        effects = "; ".join(slowdown_in_words(found).strip() for found in result["slowdowns"])
        yield f"Rail-only against rail-optimized: {effects}."
    if slowed := result.get("interference"):
        yield f"Together, jobs take up to {'; '.join(_slowest(slowed))}."
    for failure in result["failures"]:
        yield _failed(failure)
    found = [case["ratio"] for case in _judged(result["cases"])]
    found += [failure["ratio"] for failure in result["failures"] if failure["ratio"]]
    if found:
        yield f"Measured over modeled is {range_of(found)}."
    yield f"The verdict is {result['verdict']}{_because(result)}."


def _slowest(jobs: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield for each fabric the largest interference of a job."""
    for kind, on_fabric in groupby(jobs, lambda job: str(job["case"]).partition("/")[0]):
        slower = max((job["interference"] for job in on_fabric), key=itemgetter("measured"))
        times = f"{slower['measured']:.2f} times (modeled: {slower['modeled']:.2f})"
        yield f"{times} as long as alone on {kind}"


def _judged(cases: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The cases whose times are held against the model: those whose data was not checked."""
    return [case for case in cases if not is_checked(case)]


def _because(result: Mapping[str, Any]) -> str:
    """The first reasons behind a run's verdict, of its cases, faults and paths."""
    verdict = result["verdict"]
    if verdict == "pass":
        return ""
    judged = [one for one in (*result["cases"], *result["failures"]) if one["verdict"] == verdict]
    reasons = [f"{one['case']}: {reason}" for one in judged for reason in one["reasons"]]
    if result.get("paths", {}).get("verdict") == verdict:
        reasons.insert(0, "not all pairs of GPUs use their intended paths")
    more = [f"{len(reasons) - MOST_REASONS} more in the tables"] * (len(reasons) > MOST_REASONS)
    return ": " * bool(reasons) + "; ".join(reasons[:MOST_REASONS] + more)


def _failed(failure: Mapping[str, Any]) -> str:
    told = sentence(failure).removesuffix(".")
    if failure["degraded_s"] and failure["baseline_s"]:
        slower = failure["degraded_s"] / failure["baseline_s"]
        modeled = failure["modeled_degraded_s"] / failure["modeled_baseline_s"]
        told += f"; with it, an execution takes {slower:.2f} times as long (modeled: {modeled:.2f})"
    return f"{told[0].upper()}{told[1:]}."


def _sections(run: RunData, lost: Lost) -> Iterator[Section]:
    cases = run.result["cases"]
    if cases:
        yield _completion(cases)
    if phases := phases_as_cases(run):
        yield _phases(phases)
    if run.result["failures"]:
        yield _failures(run, lost)
    if crossing := [case for case in cases if "rail_crossings" in case]:
        yield _rail_crossings(crossing)
    yield _fabrics(run)
    faultless = [run.cases[case["case"]] for case in cases if case["case"] in run.cases]
    if faultless:
        yield _steps(faultless)
    yield _bytes_of_pairs(
        faultless or [case for name, case in run.cases.items() if name.endswith(f"/{BASELINE}")]
    )
    yield Section(
        "Times of transfers",
        "Of all executions that count. A steep curve: all transfers take as long.",
        [transfer_times(kind, _repeated(found)) for kind, found in run.fabrics.items()],
    )
    yield from _of_tasks(run)
    if collectives := [case for case in cases if case["busbw_gbyte_per_s"] is not None]:
        yield _bus_bandwidth(collectives)
    yield fidelity_section(run)
    if run.result.get("calibration"):
        yield calibration_section(run)


def _completion(cases: Sequence[Mapping[str, Any]]) -> Section:
    judged = _judged(cases)
    return Section(
        "Completion time by case",
        "Medians of the executions that count. Emulated seconds; a ratio of 1 is the model's. "
        'The key "expect" of the scenario limits how far it may be off. Chunks are the parts of a '
        "collective's data, overlap is the part of the modeled time in which HB domains and NICs "
        "carry data at once.",
        [completion(cases), *([ratios(judged)] if judged else [])],
        (
            *("case", "chunks", "overlap", "measured s", "least", "most", "modeled s", "ratio"),
            *("verdict", "reasons"),
        ),
        [_case_row(case) for case in cases],
    )


def _rail_crossings(crossing: Sequence[Mapping[str, Any]]) -> Section:
    return Section(
        "Crossed rails",
        "Traffic between the rails of rail-only fabrics, by the schedule. No spine switch joins "
        "their rails, so GPUs forward it.",
        [],
        ("case", "crosses"),
        [[case["case"], how] for case in crossing for how in case["rail_crossings"]],
    )


def _phases(phases: Sequence[Mapping[str, Any]]) -> Section:
    return Section(
        "Completion time by phase",
        "Baseline is before the fault; during fault, the execution in which it happens, is shown "
        "if the job began again; degraded is with the fault throughout, recovered after its end. "
        "The verdict is that of the experiment.",
        [completion(phases)],
    )


def _bytes_of_pairs(cases: Sequence[CaseData]) -> Section:
    return Section(
        "Bytes between GPUs",
        "The bytes that each GPU sends to each other one in one execution, by the schedule. "
        "Lines part the HB domains.",
        [heat_map(case, f"bytes-{n}") for n, case in enumerate(cases)],
    )


def _of_tasks(run: RunData) -> Iterator[Section]:
    """The sections that iterations, request loads and several jobs have."""
    cases = run.result["cases"]
    if iterations := [case for case in cases if "iteration" in case]:
        yield Section(
            "Where the time of iterations went",
            "Emulated seconds of a GPU: compute, traffic that compute does not hide, waiting.",
            [],
            ("case", "part", "measured s", "modeled s"),
            [row for case in iterations for row in _parts(case)],
        )
        yield _reductions(iterations)
    if loads := [case for case in cases if "inference" in case]:
        yield Section(
            "Latencies of requests",
            "From a request's arrival to the last byte of its KV cache, in emulated seconds.",
            [],
            ("case", "offered load", "percentile", "measured s", "modeled s"),
            [row for case in loads for row in _latencies(case)],
        )
    if jobs := run.result.get("interference"):
        yield _several_jobs(jobs)


def _reductions(iterations: Sequence[Mapping[str, Any]]) -> Section:
    changes = {case["algorithm"]: case["iteration"]["reduction"] for case in iterations}
    return Section(
        "Reduced configurations",
        "The numbers of each configuration, and those of the iteration that this fabric executed. "
        "A number is reduced where the fabric has too few GPUs for it.",
        [],
        ("configuration", "number", "full", "executed", ""),
        [
            (name, one["what"], f"{one['full']:.4g}", f"{one['reduced']:.4g}", _is_kept(one))
            for name, reduced in changes.items()
            for one in reduced
        ],
    )


def _is_kept(change: Mapping[str, Any]) -> str:
    return "kept" if change["full"] == change["reduced"] else "reduced"


def _several_jobs(jobs: Sequence[Mapping[str, Any]]) -> Section:
    return Section(
        "Several jobs at once",
        "Emulated seconds of each job, alone and together with the others. Interference is the "
        "time together over that alone.",
        [],
        (
            *("case", "job", "alone s", "modeled s", "together s", "modeled s"),
            *("interference", "modeled", "verdict"),
        ),
        [_interference(job) for job in jobs],
    )


def _bus_bandwidth(collectives: Sequence[Mapping[str, Any]]) -> Section:
    return Section(
        "Bus bandwidth",
        "As nccl-tests print it: busbw is the rate that a link would need if each byte crossed "
        "it as often as the best algorithm needs. In figures of the real platform.",
        [bus_bandwidth(collectives)],
        ("case", "bytes", "algbw GB/s", "busbw GB/s"),
        [_bandwidths(case) for case in collectives],
    )


def _repeated(found: Sequence[CaseData]) -> Sequence[CaseData]:
    """Leave out cases of which no execution counts."""
    return [case for case in found if len(case.measured["repeat"])]


def _case_row(case: Mapping[str, Any]) -> list[object]:
    measured = case["measured_s"]
    seconds = (measured["median"], measured["min"], measured["max"], case["modeled_s"])
    reasons = "; ".join(case["reasons"])
    figures = [f"{value:.3f}" for value in seconds]
    schedule = number_or_dash(case["chunks"], "d"), number_or_dash(case["overlap"], ".1%")
    ratio = f"{case['ratio']:.4f}"
    return [case["case"], *schedule, *figures, ratio, case["verdict"], reasons]


def _parts(case: Mapping[str, Any]) -> Iterator[list[object]]:
    for name, part in case["iteration"]["parts_s"].items():
        seconds = (f"{part[key]:.3f}" for key in ("measured", "modeled"))
        yield [case["case"], name, *seconds]


def _latencies(case: Mapping[str, Any]) -> Iterator[list[object]]:
    load = case["inference"]
    for name, value in load["latency_s"].items():
        seconds = (f"{value[key]:.4f}" for key in ("measured", "modeled"))
        yield [case["case"], f"{load['offered_load']:.0%}", name, *seconds]


def _interference(job: Mapping[str, Any]) -> list[object]:
    keys = ("alone_s", "together_s", "interference")
    figures = (f"{job[key][of]:.3f}" for key in keys for of in ("measured", "modeled"))
    return [job["case"], job["job"], *figures, job["verdict"]]


def _bandwidths(case: Mapping[str, Any]) -> list[object]:
    size = human_bytes(case["bytes"] * case["size_scale"])
    rates = (case["algbw_gbyte_per_s"], case["busbw_gbyte_per_s"])
    return [case["case"], size, *(f"{rate:.1f}" for rate in rates)]


def _failures(run: RunData, lost: Lost) -> Section:
    found = run.result["failures"]
    drawn = [strip for n, failure in enumerate(found) for strip in _strips(run, failure, lost, n)]
    return Section(
        "The fault, moment by moment",
        "Dark is where a GPU sends much; bytes of a transfer are spread evenly over its time. The "
        "throughput of links is measured, by counters that were read about a hundred times a "
        "second: of failed links, of those whose bytes changed most against the executions before "
        "the fault, and of some that changed least. A frame of up to 64 KiB is counted when a "
        "link begins to carry it; its bytes are spread over the time that the rate needs for them.",
        drawn,
        (
            *("case", "fault", "blackout ms", "baseline s", "during fault s", "degraded s"),
            "modeled s",
            *("verdict", "reasons"),
        ),
        [_failure_row(failure) for failure in found],
    )


def _strips(run: RunData, failure: Mapping[str, Any], lost: Lost, number: int) -> Iterator[Picture]:
    """Draw the execution during the fault: GPUs and probes, then links if they were sampled."""
    case = failure["case"]
    during, baseline = (run.cases.get(f"{case}/{phase}") for phase in (DURING, BASELINE))
    if during is None:
        return
    yield fault_strip(failure, during, lost.get(during.name, {}), f"fault-{number}")
    if baseline is not None and len(during.link_samples["ns"]):
        yield link_throughput(failure, baseline, during, f"fault-links-{number}")


def _failure_row(failure: Mapping[str, Any]) -> list[object]:
    keys = ("blackout_ms", "baseline_s", "during_fault_s", "degraded_s", "modeled_degraded_s")
    figures = [number_or_dash(failure[key], ".3f") for key in keys]
    fault = f"{failure['fault']}, {failure['where']}, {failure['strategy']}"
    reasons = "; ".join(failure["reasons"])
    return [failure["case"], fault, *figures, failure["verdict"], reasons]


def _fabrics(run: RunData) -> Section:
    drawn, rows = [], []
    for kind, cases in run.fabrics.items():
        degraded = [case for case in cases if case.name.endswith((f"/{DEGRADED}", f"/{DURING}"))]
        shown = degraded or cases
        use = link_use(shown)
        broken = [f for f in run.result["failures"] if f["fabric"] == kind] if degraded else []
        failed = frozenset[str]().union(*(failed_parts(shown[0].topology, f) for f in broken))
        drawn.append(fabric_picture(shown[0].topology, use, failed, f"fabric-{kind}"))
        busiest = sorted(use.values(), key=lambda link: -link.share)[:5]
        rows += [[kind, *_use_row(one)] for one in busiest]
    return Section(
        "The fabrics and the use of their links",
        "Rails are columns, HB domains rows. The wider a link, the more of its rate was in use, "
        "over the time of all executions, by the counters of its upper end; colours say the same. "
        "Failed parts are crossed. The table has the five busiest links of each fabric.",
        drawn,
        ("fabric", "link", "kind", "in use", "bytes", "dropped packets"),
        rows,
    )


def _use_row(used: LinkUse) -> list[object]:
    size = human_bytes(used.size_bytes)
    return [used.name, used.kind.value, f"{used.share:.1%}", size, used.dropped]


def _steps(cases: Sequence[CaseData]) -> Section:
    drawn, rows = [], []
    for number, case in enumerate(cases):
        found = steps(case)
        drawn.append(step_times(case, found, f"steps-{number}"))
        longest = sorted(found, key=lambda step: -step.seconds)[:MOST_STEPS]
        rows += [_step_row(case, step) for step in sorted(longest, key=lambda step: step.number)]
    return Section(
        "Time by step, and the bottleneck link",
        "Step k is the k-th transfer of every GPU, and ends when the last of them has arrived. The "
        "bottleneck is the link direction that needs the longest for the bytes of the step, by the "
        f"paths of the model. The table has the {MOST_STEPS} steps of each case with the longest "
        "need. A step may end sooner than that: the buckets of links that were idle let its first "
        "bytes leave at once.",
        drawn,
        ("case", "step", "transfers", "ended s", "modeled s", "bottleneck", "needs s"),
        rows,
    )


def _step_row(case: CaseData, step: Step) -> list[object]:
    times = (f"{step.measured_s:.4f}", f"{step.modeled_s:.4f}")
    return [case.name, step.number, step.transfers, *times, step.busiest, f"{step.seconds:.4f}"]
