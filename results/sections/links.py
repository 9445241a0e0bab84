"""The sections about links: measured alone, the paths that packets took, bytes of a program."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from model.fabric.topology import BETWEEN_SWITCHES, LinkKind
from results.sections.formats import human_bytes
from results.sections.section import (
    Case,
    Cell,
    Marked,
    Result,
    Row,
    Section,
    clock_section,
    verdict,
)
from results.verdicts.verdict import Verdict

# Outcomes of calibrated links, the best first, with the verdicts whose colours they have.
OUTCOMES = {"right": "pass", "inconclusive": "warn", "wrong": "fail"}
SHOWN_MISMATCHES = 20


def calibration_section(fabrics: Iterable[Result]) -> Section:
    """A row for each class of links of each fabric, with the worst value per column.

    With faults, each case has a fabric of its own, which has the case's name.
    """
    rows: list[Row] = []
    for fabric in fabrics:
        rows.append((fabric.get("case", fabric["fabric"]),))
        for kind in dict.fromkeys(link["kind"] for link in fabric["links"]):
            links = [link for link in fabric["links"] if link["kind"] == kind]
            rows.append((str(kind), *_worst(links)))
    return Section(
        "Links, each measured alone; the worst of each class",
        ("links", "nominal", "rate off", "latency", "gaps off", "trials", "paused", ""),
        rows,
    )


def _worst(links: Sequence[Result]) -> Iterator[Cell]:
    """Yield the worst values of links of one class."""
    yield f"{links[0]['nominal_bps'] / 1e6:.4g} Mbit/s"
    yield f"{max((link['rate_error'] for link in links), key=abs):+.2%}"
    yield f"{max(link['latency_s'] for link in links) * 1e6:.0f} µs"
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
            for line in (*_astray(fabric["mismatches"]), *_crossing(fabric["rail_isolation"]))
        ],
    )


def _path_cells(fabric: Case) -> Iterator[Cell]:
    isolation = fabric["rail_isolation"]
    yield str(fabric["pairs"])
    yield str(fabric["as_intended"])
    yield verdict(isolation)
    yield "" if isolation["foreign_bytes"] is None else str(isolation["foreign_bytes"])
    yield verdict(fabric)


def _astray(mismatches: Sequence[Result]) -> Iterator[str]:
    for pair in mismatches[:SHOWN_MISMATCHES]:
        ends = f"{pair['source']} to {pair['destination']}"
        intended, taken = (" ".join(pair[key]) or "nothing" for key in ("intended", "found"))
        stray = f"{pair['stray']} of {pair['probes']} probes astray, {pair['arrived']} arrived"
        yield f"{ends}: intended {intended}; found {taken}; {stray}"
    if len(mismatches) > SHOWN_MISMATCHES:
        yield f"and {len(mismatches) - SHOWN_MISMATCHES} more pairs"


def _crossing(isolation: Result) -> Iterator[str]:
    if isolation["verdict"] == Verdict.FAIL:
        if isolation["foreign_bytes"]:
            yield f"rails are not isolated: {isolation['foreign_bytes']} bytes crossed"
        else:
            yield "no switch forwarded anything on its own rail: isolation is not shown"


def program_sections(result: Result) -> list[Section]:
    """The bytes of GPUs' links and of links between switches, and those of link probes."""
    by_gpu: dict[str, dict[str, Any]] = {}
    for link in result["links"]:
        by_gpu.setdefault(link["lower"], {})[link["kind"]] = link
    gpus = Section(
        "Bytes of GPUs",
        ("GPU", "HB out", "HB in", "NIC out", "NIC in"),
        [
            (gpu, *_both(links[LinkKind.HB]), *_both(links[LinkKind.NIC]))
            for gpu, links in by_gpu.items()
            if LinkKind.NIC in links
        ],
        remarks=(
            f"{result['fabric']}: {result['seconds']:.1f} s; bytes on each link, by its counters",
            f"Of each figure, at most {human_bytes(result['probes_bytes'])} are link probes of the "
            "controller.",
        ),
    )
    links = (
        (kind, [link for link in result["links"] if link["kind"] == kind])
        for kind in BETWEEN_SWITCHES
    )
    return [
        gpus,
        *(
            Section(f"Bytes of each {kind}", (str(kind), "up", "down"), _link_rows(some))
            for kind, some in links
            if some
        ),
    ]


def _link_rows(links: Iterable[Result]) -> list[Row]:
    return [(link["link"], *_both(link)) for link in links]


def _both(link: Result) -> tuple[str, str]:
    return human_bytes(link["up_bytes"]), human_bytes(link["down_bytes"])
