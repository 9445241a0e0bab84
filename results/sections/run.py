"""The sections of a run, from its JSON object."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from results.sections.machine import machine_sections
from results.sections.section import (
    Columns,
    Marked,
    Result,
    Row,
    Section,
    case_section,
    grain_shown,
    grouped,
    human_bytes,
    human_seconds,
    if_timed,
    if_whole,
    number_or_dash,
    requests_section,
    slowdown_in_words,
    spread,
    told,
    verdict,
)
from results.verdicts.verdict import is_timed, times_count

# Parts that are shorter are rounding errors.
SHOWN_S = 1e-9


def run_sections(result: Result) -> list[Section]:
    """All that a run found: faults, cases, what they did, the machine, its links and paths."""
    sections = [cases_section(result), *work_sections(result), *machine_sections(result)]
    if result["failures"]:
        sections.insert(0, failures_section(result["failures"]))
    return [section for section in sections if section.has_content]


def work_sections(result: Result) -> Iterator[Section]:
    """Scales, schedules, iterations, requests, jobs; effects of fabrics and generators."""
    cases = result["cases"]
    yield _scales(result)
    yield case_section(
        "Chunks of the data, and the overlap of HB domains and NICs",
        SCHEDULE,
        (case for case in cases if case["overlap"] is not None),
        "Chunks: parts of a collective's data, slices counted. Overlap: the part of the modeled "
        "time in which HB domains and NICs carry data at once.",
    )
    yield case_section(
        "Flows that contend for links",
        CONTENTION,
        (case for case in cases if "contention" in case),
        "Grain: the bytes of a flow that leave at a time, emulated and as the platform's data. "
        "Share: a flow's measured rate over its modeled one, on the busiest link; Jain's index: "
        "1 if all are equal.",
    )
    yield Section(
        "Rails that are crossed without a spine switch",
        remarks=[f"{c['case']}: {how}" for c in cases for how in c.get("rail_crossings", ())],
    )
    yield _iterations([case for case in cases if "iteration" in case])
    loads = (case for case in cases if "inference" in case)
    yield requests_section(loads, ("measured", "modeled", "ratio", "real"), _latency)
    yield Section(
        "Jobs at once, and the interference: together over alone",
        ("job", "alone", "together", "interference", "modeled", ""),
        grouped(result.get("interference", ()), lambda job: str(job["case"]), _interference),
    )
    yield Section(
        "Completion times of other generators, against the agents'",
        remarks=[f"{one['case']}: {one['ratio']:.4f}" for one in result.get("generators", ())],
    )
    told = tuple(map(slowdown_in_words, result["slowdowns"]))
    yield Section("What rail-only costs, against rail-optimized", remarks=told)


CASES: Columns = (
    ("bytes", lambda case: human_bytes(case["bytes"])),
    ("measured", if_whole(lambda case: f"{case['measured_s']['median']:.3f} s")),
    ("spread", if_whole(lambda case: spread(case["measured_s"]))),
    ("modeled", lambda case: f"{case['modeled_s']:.3f} s"),
    ("ratio", if_timed(lambda case: f"{case['ratio']:.4f}")),
    ("algbw", if_timed(lambda case: number_or_dash(case["algbw_gbyte_per_s"], ".1f"))),
    ("busbw", if_timed(lambda case: number_or_dash(case["busbw_gbyte_per_s"], ".1f"))),
    ("", verdict),
)
SCALES: Columns = (
    ("rates", lambda case: f"/ {case['bandwidth_scale']:g}"),
    ("size", lambda case: f"/ {case['size_scale']:g}"),
    ("emulated", if_whole(lambda case: human_seconds(case["measured_s"]["median"]))),
    ("real", if_timed(lambda case: human_seconds(case["real_s"]))),
    ("on paper", lambda case: human_seconds(case["on_paper_s"])),
)
SCHEDULE: Columns = (
    ("chunks", lambda case: number_or_dash(case["chunks"], "d")),
    ("overlap", lambda case: f"{case['overlap']:.1%}"),
)
CONTENTION: Columns = (
    ("grain", lambda case: _grain(case)[0]),
    ("real", lambda case: _grain(case)[1]),
    ("of a transfer", lambda case: _grain(case)[2]),
    ("flows", lambda case: f"{case['contention']['flows']}"),
    ("Jain", lambda case: f"{case['contention']['jain']:.4f}"),
    ("least share", lambda case: f"{case['contention']['least_share']:.2f}"),
    ("most", lambda case: f"{case['contention']['most_share']:.2f}"),
)


def _grain(case: Result) -> tuple[str, str, str]:
    shared = case["contention"]
    return grain_shown(shared["grain_bytes"], shared["grains"], case["size_scale"])


FAILURES: Columns = (
    ("blackout", lambda row: number_or_dash(row["blackout_ms"], ".0f", " ms")),
    ("baseline", lambda row: number_or_dash(row["baseline_s"], ".3f")),
    ("during", lambda row: number_or_dash(row["during_fault_s"], ".3f")),
    ("degraded", if_whole(lambda row: number_or_dash(row["degraded_s"], ".3f"))),
    ("after", lambda row: number_or_dash(row["recovered_s"], ".3f")),
    ("model", lambda row: number_or_dash(row["modeled_degraded_s"], ".3f")),
    ("ratio", if_timed(lambda row: number_or_dash(row["ratio"], ".3f"))),
    ("lost", lambda row: number_or_dash(row["lost_probes_unaffected"], "d")),
    ("", verdict),
)


def told_apart(failures: Sequence[Result]) -> list[Result]:
    """Return failures with the name of their case as that of the fabric, if several share one."""
    alike = Counter((_heading(row), row["fabric"]) for row in failures)
    return [
        {**row, "fabric": row["case"]} if alike[_heading(row), row["fabric"]] > 1 else row
        for row in failures
    ]


def failures_section(failures: Sequence[Result]) -> Section:
    """A row for each fabric, or each case of several on one, by experiment; then the reasons."""
    failures = told_apart(failures)
    text = (
        "Blackout: the longest of the affected pairs that have another path. Completion times, in "
        "emulated seconds: before the fault, of the execution in which it begins, with the fault "
        "throughout, after it. Model, ratio: of the degraded phase. Lost: probes of unaffected "
        "pairs."
    )
    if any(row["back_s"] is not None for row in failures):
        text += (
            " During, of a job that began again: its clock from the first start to the last end, "
            "the restart time included."
        )
    if any(row["replay_ratio"] is not None for row in failures):
        text += (
            " Replay: no prediction, but a model that is told when the paths of this execution "
            "changed."
        )
    rows = grouped(
        failures,
        _heading,
        lambda row: (row["fabric"] or "", *(cell(row) for _, cell in FAILURES)),
    )
    reasons = (told(f"{_heading(row)}: {row['fabric']}", row) for row in failures)
    remarks = (*_responses(failures), *_checks(failures), *chain.from_iterable(reasons))
    columns = ("fabric", *(name for name, _ in FAILURES))
    return Section("Failure experiments", columns, rows, text, remarks)


def _responses(failures: Sequence[Result]) -> Iterator[Marked]:
    """Yield when the controller answered begin and end of each fault that ended; then replays."""
    for row in failures:
        for times in row["times"]:
            if times["usable_ms"] is not None:
                steps = ("detected", "confirmed", "usable", "returned")
                told = [number_or_dash(times[f"{step}_ms"], ".0f", " ms") for step in steps]
                yield Marked(
                    f"{row['fabric']}: {times['fault']} at {times['begun_s']:.3f} s: "
                    f"detected after {told[0]}, new paths after {told[1]}; "
                    f"after its end, usable after {told[2]}, used by all after {told[3]}"
                )
    for row in failures:
        if row["replay_ratio"] is not None:
            times = f"replay {row['modeled_replay_s']:.3f}, during / replay"
            judged = f"{row['replay_ratio']:.3f} {row['replay_verdict']}"
            yield Marked(f"{row['fabric']}: {times} {judged}", row["replay_verdict"])


def _heading(row: Result) -> str:
    """Name the experiment; then the component, its place, and the recovery strategy."""
    known = (row[key] for key in ("fault", "where", "strategy"))
    details = " · ".join(word for word in known if word)
    return ": ".join(filter(None, (row["scenario"], details)))


def cases_section(result: Result) -> Section:
    """Measured and modeled time of each case, and the reasons of verdicts."""
    cases, text = result["cases"], "Times are emulated; bandwidths are GB/s of the real platform."
    remarks = (*_checks(cases), *_told(cases))
    return case_section("Completion time by case", CASES, cases, text, remarks)


def _told(cases: Sequence[Result]) -> Iterator[Marked]:
    """Yield the reasons of all verdicts; then each note, once, with the cases that have it."""
    cases_by_note = defaultdict[str, list[str]](list)
    for case in cases:
        yield from told(case["case"], {**case, "notes": ()})
        for note in case.get("notes", ()):
            cases_by_note[note].append(case["case"])
    for note, names in cases_by_note.items():
        is_common = 1 < len(names) == len(cases)
        where = f"all {len(cases)} cases" if is_common else ", ".join(names)
        yield Marked(f"note: {where}: {note}")


def _checks(cases: Sequence[Result]) -> Iterator[Marked]:
    """Say whether data and crafted packets are right, and that such times mean nothing."""
    checked = [case for case in cases if not times_count(case["data_is_right"])]
    crafted = [case for case in checked if case.get("generator") == "scapy"]
    by_agents = [case for case in checked if case.get("generator") != "scapy"]
    data = "all elements of all results are right", "not all results are right"
    packets = "all came whole, on their intended paths", "not all came as intended"
    for what, some, (right, wrong), how in (
        ("data", by_agents, data, "The agents checked them meanwhile"),
        ("packets", crafted, packets, "They were crafted one by one"),
    ):
        lost = [case["case"] for case in some if not case["data_is_right"]]
        told = f"{wrong}, in {', '.join(lost)}" if lost else right
        times = f"{how}: the times mean nothing, and no ratio is judged."
        if some:
            yield Marked(f"{what}: {told}. {times}", "fail" if lost else "pass")


def timed(cases: Iterable[Result]) -> list[Result]:
    """The cases or failures whose times are held against the model."""
    return [case for case in cases if is_timed(case)]


def _scales(result: Result) -> Section:
    scales = result.get("scales", ())
    chosen = [f"{one['key']}: auto is {one['value']:g}: {one['why']}" for one in scales]
    if not result["cases"]:  # with faults, the table of phases has the times
        return Section("Scales", remarks=tuple(chosen))
    title = "Scales, and the measured time, emulated and on the real platform"
    text = "On paper: the platform's own time, with its latencies and the headers of RoCE."
    return case_section(title, SCALES, result["cases"], text, chosen)


def _iterations(cases: Sequence[Result]) -> Section:
    rows = list[Row]()
    for case in cases:
        rows.append((case["case"],))
        for name, part in case["iteration"]["parts_s"].items():
            if max(part.values()) > SHOWN_S:
                rows.append((name, *(f"{part[of]:.3f} s" for of in ("measured", "modeled"))))
    changed = {case["algorithm"]: case["iteration"]["reduction"] for case in cases}
    return Section(
        "Training iterations: compute, traffic that it does not hide, waiting",
        ("of a GPU's time", "measured", "modeled"),
        rows,
        remarks=[f"{name}: {_reduced(changes)}" for name, changes in changed.items()],
    )


def _reduced(changes: Iterable[Result]) -> str:
    # Imports NumPy, which the table of a run without iterations does not need.
    from model.training.reduction import reduction_in_words

    return reduction_in_words(changes)


def _latency(case: Result, seconds: Mapping[str, float]) -> Row:
    measured, modeled = seconds["measured"], seconds["modeled"]
    real = human_seconds(measured / case["time_dilation"])
    return f"{measured:.4f} s", f"{modeled:.4f} s", f"{measured / modeled:.3f}", real


def _interference(job: Result) -> Row:
    times = (f"{job[key]['measured']:.3f} s" for key in ("alone_s", "together_s"))
    ratios = (f"{job['interference'][of]:.3f}" for of in ("measured", "modeled"))
    return job["job"], *times, *ratios, verdict(job)
