"""The sections of a run's article about its machine: whether it was fast enough, and its links."""

from collections.abc import Mapping
from typing import Any

from results.report.article import Section
from results.report.data.run_data import RunData
from results.tables.measured.link_calibration import CALIBRATED, worst_of_class
from results.tables.style import number_or_dash
from results.verdicts.fidelity import LIMITS, Limit

# Figures of a case: their key, their name, their format, and the limits that judge them.
OBSERVED: Mapping[str, tuple[str, str, Limit | None]] = {
    "idle_p5": ("idle cores, least twentieth", ".0%", None),
    "switch_share_max": ("busiest switch, share of a core", ".0%", None),
    "strain_max": ("strain", ".2f", LIMITS.strain),
    "agents_run_delay_mean": ("agents waited for a core", ".1%", LIMITS.agents_run_delay),
    "agents_run_delay_max": ("one agent waited", ".1%", LIMITS.one_agent_run_delay),
    "lost_beyond": ("pauses, beyond what buckets make up for", ".1%", LIMITS.lost_beyond),
    "start_skew": ("latest start", ".1%", LIMITS.start_skew),
    "retransmits_per_s": ("retransmitted segments a second", ".0f", LIMITS.retransmits_per_s),
    "dropped_packets": ("dropped packets", "", None),
}


def fidelity_section(run: RunData) -> Section:
    """Observations of the machine in each case, below the limits that judge them."""
    observed = [(case["case"], case["fidelity"]) for case in run.result["cases"]]
    for failure in run.result["failures"]:
        observed += [(f"{failure['case']}/{p}", f) for p, f in failure["fidelity"].items()]
    limits = [limit for _, _, limit in OBSERVED.values()]
    above = [
        [f"{verdict} above", "", *_figures(dict(zip(OBSERVED, found, strict=True)))]
        for verdict, found in (
            ("warn", [limit and limit.warn for limit in limits]),
            ("fail", [limit and limit.fail for limit in limits]),
        )
    ]
    return Section(
        "Fidelity",
        "Whether the machine was fast enough, by the worst execution of each case, and the limits "
        "of this version of Railbed. Strain adds up the delays of a byte, as a share of the time: "
        "at the switch, at both its agents, and in pauses; its failure is judged by the median "
        "execution. During a fault, retransmitted segments are not judged. Dropped packets are "
        "those of all executions.",
        columns=("case", "verdict", *(words for words, _, _ in OBSERVED.values())),
        rows=above + [[name, seen["verdict"], *_figures(seen)] for name, seen in observed],
    )


def _figures(seen: Mapping[str, Any]) -> list[str]:
    return [number_or_dash(seen.get(key), form) for key, (_, form, _) in OBSERVED.items()]


def calibration_section(run: RunData) -> Section:
    """Rate errors of links that were measured alone, by class."""
    fabrics = run.result["calibration"]
    rows = [
        [fabric.get("case", fabric["fabric"]), *worst_of_class(links)]
        for fabric in fabrics
        for links in _classes(fabric["links"])
    ]
    return Section(
        "Calibration",
        "Links of each class, each measured alone before the cases; the worst of each class. A "
        "wrong link ends a run.",
        columns=("fabric", *CALIBRATED),
        rows=rows,
    )


def _classes(links: list[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    kinds = dict.fromkeys(link["kind"] for link in links)
    return [[link for link in links if link["kind"] == kind] for kind in kinds]
