"""The sections of a run about its machine: executions, headroom, and the limits that judge it."""

from collections.abc import Mapping, Sequence
from typing import Any

from results.sections.formats import number_or_dash
from results.sections.section import (
    Case,
    Cell,
    Columns,
    Result,
    Row,
    Section,
    case_section,
    verdict,
)
from results.verdicts.fidelity import LIMITS, Limit
from results.verdicts.summary import Interval


def _disturbed(case: Case) -> str:
    disturbed = f"{len(case['disturbed_s'])}"
    return f"{disturbed}, all count" if case["disturbed_counted"] else disturbed


def _median_within(case: Case) -> str:
    interval = case["measured_s"]["interval"]
    return "-" if interval is None else f"{Interval(**interval).half_width:.2%}"


def _longest_pause(case: Case) -> str:
    seen = case["fidelity"]
    return f"{1e3 * seen['pause_longest_s']:.1f} ms" if "lost" in seen else "-"


EXECUTIONS: Columns = (
    ("counted", lambda case: f"{len(case['measured_s']['values'])}"),
    ("disturbed", _disturbed),
    ("median ±", _median_within),
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
JUDGED: Mapping[str, tuple[str, str, Limit | None]] = {
    "idle_p5": ("idle cores, least twentieth", ".0%", None),
    "switch_share_max": ("busiest switch, share of a core", ".0%", None),
    "delay_share_max": ("delay share", ".2f", LIMITS.delay_share),
    "agents_run_delay_mean": ("agents waited for a core", ".1%", LIMITS.agents_run_delay),
    "agents_run_delay_max": ("one agent waited", ".1%", LIMITS.one_agent_run_delay),
    "lost_beyond": ("pauses, beyond what buckets make up for", ".1%", LIMITS.lost_beyond),
    "start_skew": ("latest start", ".1%", LIMITS.start_skew),
    "retransmits_per_s": ("retransmitted segments a second", ".0f", LIMITS.retransmits_per_s),
    "dropped_packets": ("dropped packets", "", None),
}


def executions_section(cases: Sequence[Case]) -> Section:
    """How many executions count, and what pauses took."""
    return case_section(
        "Executions, and pauses of the machine",
        EXECUTIONS,
        cases,
        "Disturbed: by pauses of the machine; others were executed in their place. Median ±: with "
        "95 % confidence, from six executions on. Lost: of all cores, to pauses of 1 ms and more; "
        "longest: of these pauses; both in the worst execution.",
    )


def headroom_section(cases: Sequence[Case]) -> Section:
    """The figures behind the fidelity verdict."""
    return case_section(
        "Machine headroom",
        HEADROOM,
        (case for case in cases if "windows" in case["fidelity"]),
        "Idle: of all cores. Switch: the busiest one's share of a core; never idle: share of the "
        "CPU samples; backlogged: share of the time, without a core. Agents: waited for a core. "
        "Retx: segments that TCP retransmitted, in all executions that count; all else is of the "
        "worst one.",
    )


def fidelity_section(result: Result) -> Section:
    """The judged figures of cases and phases, below the limits that judge them."""
    observed = [(case["case"], case["fidelity"]) for case in result["cases"]]
    for failure in result["failures"]:
        observed += [(f"{failure['case']}/{p}", f) for p, f in failure["fidelity"].items()]
    above: list[Row] = []
    for judged in ("warn", "fail"):
        limits = {
            key: None if limit is None else getattr(limit, judged)
            for key, (_, _, limit) in JUDGED.items()
        }
        above.append((f"{judged} above", *_figures(limits), ""))
    return Section(
        "Fidelity",
        ("case", *(words for words, _, _ in JUDGED.values()), "verdict"),
        [*above, *((name, *_figures(seen), verdict(seen)) for name, seen in observed)],
        "Whether the machine was fast enough, by the worst execution of each case, and the limits "
        "of this version of Railbed. Delay share: the delays of a byte, as a share of the time, "
        "at the switch, at both its agents, and in pauses; its failure is judged by the median "
        "execution. During a fault, retransmitted segments are not judged. Dropped packets are "
        "those of all executions.",
    )


def _figures(seen: Mapping[str, Any]) -> list[Cell]:
    return [number_or_dash(seen.get(key), form) for key, (_, form, _) in JUDGED.items()]
