"""The sections about the machine and its fabric: executions, headroom, links, paths, the clock."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from model.fabric.topology import BETWEEN_SWITCHES, LinkKind
from model.sentences import counted
from results.sections.section import (
    Cell,
    Columns,
    Marked,
    Result,
    Row,
    Section,
    case_section,
    human_bytes,
    if_whole,
    number_or_dash,
    verdict,
)
from results.verdicts.fidelity import LIMITS
from results.verdicts.summary import Interval
from results.verdicts.verdict import Thresholds, Verdict


def _median_within(case: Result) -> str:
    interval, median = case["measured_s"]["interval"], case["measured_s"]["median"]
    return "-" if interval is None else f"{Interval(**interval).away(median):.2%}"


def _longest_pause(case: Result) -> str:
    seen = case["fidelity"]
    return f"{1e3 * seen['pause_longest_s']:.1f} ms" if "lost" in seen else "-"


EXECUTIONS: Columns = (
    ("counted", if_whole(lambda case: f"{len(case['measured_s']['values'])}")),
    ("disturbed", lambda c: f"{len(c['disturbed_s'])}" + ", all count" * c["disturbed_counted"]),
    ("median ±", if_whole(_median_within)),
    ("lost", lambda case: number_or_dash(case["fidelity"].get("lost"), ".1%")),
    ("longest", _longest_pause),
)
HEADROOM: Columns = (
    ("idle", lambda case: f"{case['fidelity']['idle_mean']:.0%}"),
    ("switch", lambda case: f"{case['fidelity']['switch_share_mean']:.0%}"),
    ("never idle", lambda case: f"{case['fidelity']['switch_never_idle']:.0%}"),
    ("backlogged", lambda case: f"{case['fidelity']['switch_backlogged']:.0%}"),
    ("agents", lambda case: f"{case['fidelity']['agents_run_delay_mean']:.1%}"),
    ("retx", lambda case: f"{case['fidelity']['retransmits']}"),
    ("", lambda case: verdict(case["fidelity"])),
)
# Figures that are judged: their key, their name, their format, and their limits.
JUDGED: Mapping[str, tuple[str, str, Thresholds | None]] = {
    "idle_p5": ("idle cores, least twentieth", ".0%", None),
    "switch_share_max": ("busiest switch in the worst sample, share of a core", ".0%", None),
    "delay_share_max": ("delay share", ".2f", LIMITS.delay_share),
    "agents_run_delay_mean": ("agents waited for a core", ".1%", LIMITS.agents_run_delay),
    "agents_run_delay_max": ("one agent waited", ".1%", LIMITS.one_agent_run_delay),
    "lost_beyond": ("pauses, beyond what buckets make up for", ".1%", LIMITS.lost_beyond),
    "start_skew": ("latest start", ".1%", LIMITS.start_skew),
    "retransmits_per_s": ("retransmissions a second", ".0f", LIMITS.retransmits_per_s),
    "dropped_packets": ("dropped packets", "", None),
}
# Outcomes of calibrated links, the best first, with the verdicts whose colours they have.
OUTCOMES = {"right": "pass", "inconclusive": "warn", "wrong": "fail"}
SHOWN_MISMATCHES = 20


def machine_sections(result: Result) -> Iterator[Section]:
    """Executions, the machine's headroom, links measured alone, paths, the virtual clock."""
    yield executions_section(result["cases"])
    yield headroom_section(result["cases"])
    yield calibration_section(result.get("calibration", ()))
    yield clock_section(result)
    if "paths" in result:
        yield paths_section(result["paths"])


def executions_section(cases: Sequence[Result]) -> Section:
    """How many executions count, and what pauses took."""
    text = (
        "Disturbed: by pauses of the machine; others were executed in their place. Median ±: with "
        "95% confidence, from six executions on. Lost: of all cores, to pauses of 1 ms and more; "
        "longest: of these pauses; both in the worst execution."
    )
    return case_section("Executions, and pauses of the machine", EXECUTIONS, cases, text)


def headroom_section(cases: Sequence[Result]) -> Section:
    """The figures behind the fidelity verdict."""
    text = (
        "Idle: of all cores. Switch: the busiest one's share of a core; never idle: share of the "
        "CPU samples; backlogged: share of the time, without a core. Agents: waited for a core. "
        "Retx: segments of TCP and packets of RoCE, sent again in all executions that count; all "
        "else is of the worst one."
    )
    observed = (case for case in cases if "windows" in case["fidelity"])
    return case_section("Machine headroom", HEADROOM, observed, text)


def fidelity_section(result: Result) -> Section:
    """The judged figures of cases and phases, below the limits that judge them."""
    observed = [(case["case"], case["fidelity"]) for case in result["cases"]]
    for failure in result["failures"]:
        observed += [(f"{failure['case']}/{p}", f) for p, f in failure["fidelity"].items()]
    above: list[Row] = []
    for judged in ("warn", "fail"):
        limits = {key: getattr(limit, judged, None) for key, (_, _, limit) in JUDGED.items()}
        above.append((f"{judged} above", *_figures(limits), ""))
    return Section(
        "Fidelity",
        ("case", *(words for words, _, _ in JUDGED.values()), "verdict"),
        [*above, *((name, *_figures(seen), verdict(seen)) for name, seen in observed)],
        "Whether the machine was fast enough, by the worst execution of each case, and the limits "
        "of this version of Railbed. Delay share: the delays of a byte, as a share of the time, "
        "at the switch, at both its agents, and in pauses; its failure is judged by the median "
        "execution. Retransmissions are not judged during a fault, nor where links or queues lose "
        "packets, or RoCE sprays them. Dropped packets are those of all executions.",
    )


def _figures(seen: Mapping[str, Any]) -> list[Cell]:
    return [number_or_dash(seen.get(key), form) for key, (_, form, _) in JUDGED.items()]


def calibration_section(fabrics: Iterable[Result]) -> Section:
    """A row for each class of links of each fabric, with the worst value per column.

    With faults, each case has a fabric of its own, which has the case's name.
    """
    rows: list[Row] = []
    for fabric in fabrics:
        rows.append((fabric.get("case", fabric["fabric"]),))
        classes = defaultdict(list)
        for link in fabric["links"]:
            classes[link["kind"], link["nominal_bps"]].append(link)
        rows += [(str(kind), *_worst(links)) for (kind, _), links in classes.items()]
    return Section(
        "Links, each measured alone; the worst of each class",
        ("links", "nominal", "rate off", "latency", "gaps off", "trials", "paused", ""),
        rows,
    )


def _worst(links: Sequence[Result]) -> Iterator[Cell]:
    yield f"{links[0]['nominal_bps'] / 1e6:.4g} Mbit/s"
    yield f"{max((link['rate_error'] for link in links), key=abs):+.2%}"
    yield f"{max(link['latency_s'] for link in links) * 1e6:.0f} us"
    gaps = [link["gap_error_p95"] for link in links if link["gap_error_p95"] is not None]
    yield f"{max(gaps):.1%}" if gaps else "-"
    yield f"{max(len(link['trials']) for link in links)}"
    paused_s = max(trial["paused_s"] for link in links for trial in link["trials"])
    yield f"{paused_s * 1e3:.0f} ms"
    outcome = max((link["outcome"] for link in links), key=list(OUTCOMES).index)
    yield Marked(outcome, OUTCOMES[outcome])


def verify_sections(result: Result) -> list[Section]:
    """The checked paths of `verify`, and its clock."""
    return [paths_section(result), clock_section(result)]


def paths_section(result: Result) -> Section:
    """Pairs on their intended paths; the first that are not, and rails that are not isolated."""
    fabrics = result["fabrics"]
    return Section(
        "The paths that packets took",
        ("fabric", "pairs", "as intended", "rail isolation", "bytes across rails", "verdict"),
        [(fabric["kind"], *_path_cells(fabric)) for fabric in fabrics],
        remarks=[
            Marked(f"fail: {fabric['kind']}: {line}", "fail")
            for fabric in fabrics
            for line in _path_failures(fabric["mismatches"], fabric["rail_isolation"])
        ],
    )


def _path_cells(fabric: Result) -> Row:
    isolation = fabric["rail_isolation"]
    crossed = "" if isolation["foreign_bytes"] is None else str(isolation["foreign_bytes"])
    counts = str(fabric["pairs"]), str(fabric["as_intended"])
    return *counts, verdict(isolation), crossed, verdict(fabric)


def _path_failures(mismatches: Sequence[Result], isolation: Result) -> Iterator[str]:
    for pair in mismatches[:SHOWN_MISMATCHES]:
        ends = f"{pair['source']} to {pair['destination']}"
        intended, taken = (" ".join(pair[key]) or "nothing" for key in ("intended", "found"))
        stray = f"{pair['stray']} of {pair['probes']} probes astray, {pair['arrived']} arrived"
        yield f"{ends}: intended {intended}; found {taken}; {stray}"
    if len(mismatches) > SHOWN_MISMATCHES:
        yield f"and {counted(len(mismatches) - SHOWN_MISMATCHES, 'more pair')}"
    if isolation["verdict"] == Verdict.FAIL:
        if isolation["foreign_bytes"]:
            yield f"rails are not isolated: {isolation['foreign_bytes']} bytes crossed"
        else:
            yield "no switch forwarded anything on its own rail: isolation is not shown"


def program_sections(result: Result) -> list[Section]:
    """The bytes of GPUs' links and of links between switches, and those of link probes."""
    by_gpu: dict[str, dict[str, Counter[str]]] = {}
    for link in result["links"]:
        of_kind = by_gpu.setdefault(link["lower"], {}).setdefault(link["kind"], Counter())
        of_kind.update({way: link[way] for way in ("up_bytes", "down_bytes")})
    with_nic = {gpu: links for gpu, links in by_gpu.items() if LinkKind.NIC in links}
    probes = human_bytes(result["probes_bytes"])
    gpus = Section(
        "Bytes of GPUs",
        ("GPU", "HB out", "HB in", "NIC out", "NIC in"),
        [(gpu, *_both(of[LinkKind.HB]), *_both(of[LinkKind.NIC])) for gpu, of in with_nic.items()],
        remarks=(
            f"{result['fabric']}: {result['seconds']:.1f} s; bytes on each link, by its counters",
            f"Of each figure, at most {probes} are link probes of the controller.",
        ),
    )
    between = [
        Section(
            f"Bytes of each {kind}",
            (str(kind), "up", "down"),
            [(link["link"], *_both(link)) for link in result["links"] if link["kind"] == kind],
        )
        for kind in BETWEEN_SWITCHES
    ]
    return [gpus, *(section for section in between if section.has_content)]


def _both(link: Mapping[str, Any]) -> tuple[str, str]:
    return human_bytes(link["up_bytes"]), human_bytes(link["down_bytes"])


def clock_section(result: Result) -> Section:
    """The virtual clock of a result; without content for this machine's own clock."""
    if "clock" not in result:
        return Section("Clock")
    clock = result["clock"]
    line = (
        f"Virtual clock, {clock['instruction_ns']} ns an instruction: image {clock['image']}, "
        f"{clock['qemu']}, seed {clock['seed']}; records {clock['records']}"
    )
    return Section("Clock", remarks=(line,))
