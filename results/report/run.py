"""The article about a run: the answer, then sections with pictures and tables of records."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, product
from operator import itemgetter
from typing import Any

from model.sweep import VIRTUAL
from results.figures.kit import Picture
from results.render.page import Article, Part, Repetition
from results.report import charts
from results.report.analysis import failed_parts, link_use, steps
from results.report.fabric_picture import fabric_picture
from results.report.fault_pictures import fault_strip, link_throughput, sentence
from results.report.run_data import CaseData, RunData
from results.sections.machine import fidelity_section, machine_sections
from results.sections.run import cases_section, failures_section, timed, told_apart, work_sections
from results.sections.section import Row, Section, human_bytes, range_of, slowdown_in_words, told
from results.store.runs import BASELINE, DEGRADED, DURING, PHASES, RECOVERED, clock_of
from results.verdicts.verdict import is_timed

# Seconds at which probes were lost, by case and pair.
Lost = Mapping[str, Mapping[str, Sequence[float]]]
MOST_STEPS = 10
PHASES_TEXT = (
    "Baseline is before the fault; during fault, the execution in which it happens, is shown "
    "if the job began again; degraded is with the fault throughout, recovered after its end. "
    "The verdict is that of the experiment."
)
MOMENTS_TEXT = (
    "Shades say how much a GPU sends; bytes of a transfer are spread evenly over its time, up to "
    "the abort if that cut it off. The throughput of links is measured, by counters that were "
    "read about a hundred times a second: of failed links, of those whose bytes changed most "
    "against the executions before the fault, and of some that changed least. A frame of up to "
    "64 KiB is counted when a link begins to carry it; its bytes are spread over the time that "
    "the rate needs for them."
)
BANDWIDTH_TEXT = (
    "As nccl-tests print it: busbw is the rate that a link would need if each byte crossed "
    "it as often as the best algorithm needs. In figures of the real platform."
)
PAIRS_TEXT = (
    "The bytes that each GPU sends to each other one in one execution, by the schedule. "
    "Lines separate the HB domains."
)
TRANSFERS_TEXT = "Of all executions that count. A steep curve: all transfers take as long."
TRANSPORT_TEXT = (
    "Queue pairs of the last execution, and ports of switches whose queues the scenario gives: "
    "those that sent most, the longest queues, and how many packets were marked, dropped "
    "and retransmitted, and CNPs sent, by all of them. Sampled about ten times a second."
)
# The tables have all reasons; the answer has this many.
MOST_REASONS = 3


def run_article(run: RunData, lost: Lost) -> Article:
    """Return the article about a run: its answer, and sections with its pictures and tables."""
    scenario = str(run.result["scenario"])
    parts = [part for part in _parts(run, lost) if part.section.has_content or part.pictures]
    repetition = Repetition(run.scenario, _command(run.result), run.result.get("machine", {}))
    return Article(scenario, run.result["run_id"], " ".join(answer(run.result)), parts, repetition)


def _command(result: Mapping[str, Any]) -> str:
    """The command that repeats a run."""
    if clock_of(result) == VIRTUAL:
        return "./railbed run scenario.yaml --clock virtual"
    proxies = result.get("machine", {}).get("proxies", "container")
    return f"sudo ./railbed run scenario.yaml --proxies {proxies}"


def answer(result: Mapping[str, Any]) -> Iterator[str]:
    """State the findings of a run: effects first, then the distance from the model, the verdict."""
    if result["slowdowns"]:
        effects = "; ".join(slowdown_in_words(one) for one in result["slowdowns"])
        yield f"Rail-only against rail-optimized: {effects}."
    if result.get("interference"):
        yield f"Together, jobs take up to {'; '.join(_slowest(result['interference']))}."
    yield from map(_failed, told_apart(result["failures"]))
    if off := [case["ratio"] for case in timed(result["cases"])]:
        yield f"Measured over modeled is {range_of(off)}."
    if degraded := [one["ratio"] for one in timed(result["failures"]) if one["ratio"]]:
        yield f"Measured over modeled is {range_of(degraded)} in the degraded phase."
    yield f"The verdict is {result['verdict']}{_because(result)}."


def _slowest(jobs: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield for each fabric the largest interference of a job."""
    for kind, on_fabric in groupby(jobs, lambda job: str(job["case"]).partition("/")[0]):
        slower = max((job["interference"] for job in on_fabric), key=itemgetter("measured"))
        times = f"{slower['measured']:.2f} times (modeled: {slower['modeled']:.2f})"
        yield f"{times} as long as alone on {kind}"


def _because(result: Mapping[str, Any]) -> str:
    """The first reasons behind a run's verdict, of its cases, faults and paths."""
    verdict = result["verdict"]
    if verdict == "pass":
        return ""
    judged = (*result["cases"], *result["failures"])
    said = (str(reason) for one in judged for reason in told(one["case"], one))
    reasons = [line[len(verdict) + 2 :] for line in said if line.startswith(verdict)]
    if result.get("paths", {}).get("verdict") == verdict:
        reasons.insert(0, "not all pairs of GPUs use their intended paths")
    more = [f"{len(reasons) - MOST_REASONS} more in the tables"] * (len(reasons) > MOST_REASONS)
    return ": " * bool(reasons) + "; ".join(reasons[:MOST_REASONS] + more)


def _failed(failure: Mapping[str, Any]) -> str:
    told = sentence(failure).removesuffix(".")
    if failure["degraded_s"] and failure["baseline_s"] and is_timed(failure):
        slower = failure["degraded_s"] / failure["baseline_s"]
        modeled = failure["modeled_degraded_s"] / failure["modeled_baseline_s"]
        told += f"; with it, an execution takes {slower:.2f} times as long (modeled: {modeled:.2f})"
    return f"{told[0].upper()}{told[1:]}."


def _parts(run: RunData, lost: Lost) -> Iterator[Part]:
    result, cases = run.result, run.result["cases"]
    if cases:
        judged = timed(cases)
        drawn = [charts.completion(cases), *([charts.ratios(judged)] if judged else [])]
        yield Part(cases_section(result), drawn)
    if phases := phases_as_cases(run):
        yield _drawn("Completion time by phase", PHASES_TEXT, [charts.completion(phases)])
    failures = told_apart(result["failures"])
    yield Part(failures_section(failures))
    strips = [strip for n, one in enumerate(failures) for strip in _strips(run, one, lost, n)]
    yield _drawn("The fault, moment by moment", MOMENTS_TEXT, strips)
    yield from map(Part, work_sections(result))
    if collectives := [one for one in timed(cases) if one["busbw_gbyte_per_s"] is not None]:
        yield _drawn("Bus bandwidth", BANDWIDTH_TEXT, [charts.bus_bandwidth(collectives)])
    yield _fabrics(run)
    faultless = [run.cases[case["case"]] for case in cases if case["case"] in run.cases]
    yield _steps(faultless)
    baselines = [case for name, case in run.cases.items() if name.endswith(f"/{BASELINE}")]
    maps = [charts.heat_map(case, f"bytes-{n}") for n, case in enumerate(faultless or baselines)]
    yield _drawn("Bytes between GPUs", PAIRS_TEXT, maps)
    times = [
        charts.transfer_times(kind, arrived)
        for kind, cases in run.fabrics.items()
        if (arrived := [case for case in cases if case.measured["arrived_ns"].any()])
    ]
    yield _drawn("Times of transfers", TRANSFERS_TEXT, times)
    numbered = enumerate(run.cases.values())
    sampled = [(number, case) for number, case in numbered if len(case.queue_pairs["ns"])]
    transports = [charts.transport_picture(case, f"transport-{n}") for n, case in sampled]
    yield _drawn("Queue pairs and queues", TRANSPORT_TEXT, transports)
    yield Part(fidelity_section(result))
    yield from map(Part, machine_sections(result))


def _drawn(title: str, text: str, pictures: Sequence[Picture]) -> Part:
    return Part(Section(title, text=text), pictures)


def phases_as_cases(run: RunData) -> list[dict[str, Any]]:
    """Return the phases of all failures whose time is modeled, with measured and modeled times.

    The time of an execution during the fault is modeled only if the job begins again.
    """
    phases = []
    for failure, phase in product(run.result["failures"], PHASES):
        model = BASELINE if phase == RECOVERED else phase
        median_s, modeled_s = failure[f"{phase}_s"], failure[f"modeled_{model}_s"]
        if median_s is not None and modeled_s is not None:
            name = f"{failure['case']}/{phase}"
            # A job that begins again is executed twice: neither execution lasts as long as both.
            case = None if phase == DURING else run.cases.get(name)
            values = [median_s] if case is None else case.completion_s.tolist() or [median_s]
            measured = {"median": median_s, "min": min(values), "max": max(values)}
            incomplete = phase == DEGRADED and failure.get("incomplete", False)
            kept = {key: failure[key] for key in ("data_is_right", "verdict")}
            times = {"modeled_s": modeled_s, "ratio": median_s / modeled_s}
            phases.append(
                {"case": name, "measured_s": measured, "incomplete": incomplete, **times, **kept}
            )
    return phases


def _strips(run: RunData, failure: Mapping[str, Any], lost: Lost, number: int) -> Iterator[Picture]:
    """Draw the execution during the fault: GPUs and probes, then links if they were sampled."""
    case = failure["case"]
    during, baseline = (run.cases.get(f"{case}/{phase}") for phase in (DURING, BASELINE))
    if during is None:
        return
    yield fault_strip(failure, during, lost.get(during.name, {}), f"fault-{number}")
    if baseline is not None and len(during.link_samples["ns"]):
        yield link_throughput(failure, baseline, during, f"fault-links-{number}")


def _fabrics(run: RunData) -> Part:
    drawn, rows = [], list[Row]()
    for kind, cases in run.fabrics.items():
        broken = [f for f in run.result["failures"] if f["fabric"] == kind]
        shown = _longest_broken(cases)
        use = link_use(shown)
        failed = frozenset[str]().union(*(failed_parts(shown[0].topology, f) for f in broken))
        drawn.append(fabric_picture(shown[0].topology, use, failed, f"fabric-{kind}"))
        busiest = sorted(use.values(), key=lambda link: -link.share)[:5]
        rows.append((kind,))
        for used in busiest:
            size = human_bytes(used.size_bytes)
            rows.append((used.name, used.kind.value, f"{used.share:.1%}", size, f"{used.dropped}"))
    section = Section(
        "The fabrics and the use of their links",
        ("link", "kind", "in use", "bytes", "dropped packets"),
        rows,
        "Rails are columns, HB domains rows. The wider a link, the more of its rate was in use, "
        "over the time of all executions, by the counters of its upper end; colours say the same. "
        "With faults, executions are those of the degraded phase, or else that during the fault. "
        "Failed parts are crossed. The table has the five busiest links of each fabric.",
    )
    return Part(section, drawn)


def _longest_broken(cases: Sequence[CaseData]) -> Sequence[CaseData]:
    """The cases with faults throughout, or those in which they happen, or all without any.

    An aborted execution has no use of links: what it left in queues is sent after it.
    """
    phases = ([case for case in cases if case.name.endswith(f"/{p}")] for p in (DEGRADED, DURING))
    return next(filter(None, phases), cases)


def _steps(cases: Sequence[CaseData]) -> Part:
    drawn, rows = [], list[Row]()
    for number, case in enumerate(cases):
        every = steps(case)
        drawn.append(charts.step_times(case, every, f"steps-{number}"))
        longest = sorted(every, key=lambda step: -step.seconds)[:MOST_STEPS]
        rows.append((case.name,))
        for step in sorted(longest, key=lambda step: step.number):
            times_s = (step.measured_s, step.modeled_s, step.seconds)
            *times, needs = (f"{seconds:.4f} s" for seconds in times_s)
            rows.append((f"{step.number}", f"{step.transfers}", *times, step.busiest, needs))
    section = Section(
        "Time by step, and the bottleneck link",
        ("step", "transfers", "ended", "modeled", "bottleneck", "needs"),
        rows,
        "Step k is the k-th transfer of every GPU, and ends when the last of them has arrived. The "
        "bottleneck is the link direction that needs the longest for the bytes of the step, by the "
        f"paths of the model. The table has the {MOST_STEPS} steps of each case with the longest "
        "need. A step may end sooner than that: the buckets of links that were idle let its first "
        "bytes leave at once.",
    )
    return Part(section, drawn)
