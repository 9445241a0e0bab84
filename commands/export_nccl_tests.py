"""A run's collectives as nccl-tests print them: a table, and the JSON object of their option `-J`.

Sizes and times are the real platform's, as the bandwidths are. nccl-tests execute in place and out
of place; here one execution stands for both.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from linux.files.user_files import make_folder
from model.errors import InputError, Problem
from model.workload.generator import Generator
from model.workload.transfers.collective import ROOT, Collective
from results.store.records import reading, write_record
from results.store.runs import folder_name, read_result
from results.verdicts.verdict import times_count
from traffic_gen.workloads.algorithms.collectives import NCCL

ELEMENT_BYTES = 4
# Each rank's part is a multiple of so many elements, 16 bytes.
PART_ELEMENTS = 4
# Stands in a table for the number of wrong elements, which is not counted: null in the object.
NOT_CHECKED = "N/A"
# How parts of a case's name begin that say how an algorithm sends.
HOW = "peers-", "slices-"
Case = Mapping[str, Any]
TIMED, TIMED_UNITS = ("time", "algbw", "busbw", "#wrong"), ("(us)", "(GB/s)", "(GB/s)", "")
COLUMNS = ("size", "count", "type", "redop", "root", *TIMED, *TIMED)
UNITS = ("(B)", "(elements)", "", "", "", *TIMED_UNITS, *TIMED_UNITS)
WIDTHS = (12, 13, 9, 7, 7, 8, 7, 7, 7, 8, 7, 7, 7)
PLACES = f"#{'':62}out-of-place{'':23}in-place{'':10}"


def export_nccl_tests(run: Path, folder: Path) -> list[Path]:
    """Write a table and a JSON object for each collective with its algorithm on each fabric."""
    result = read_result(run)
    written: list[Path] = []
    with reading(run):
        grouped = groups(result["cases"])
        if not grouped:
            ran = any(not case.get("incomplete") for case in result["cases"])
            hint = f"use --format {'chakra or htsim' if ran else 'json'}"
            raise InputError(Problem(str(run), "needs a timed collective without faults", hint))
        for name, cases in grouped.items():
            table, document = (folder / f"{folder_name(name)}.{end}" for end in ("txt", "json"))
            make_folder(folder)
            write_record(table, "\n".join((*rows_as_printed(name, cases), "")))
            write_record(document, json.dumps(_object(name, cases), indent=1) + "\n")
            written += [table, document]
    return written


def groups(cases: Sequence[Case]) -> dict[str, list[Case]]:
    """Group collectives by fabric and algorithm, in order of sizes.

    Other cases have no bandwidth; nor are there times of cases whose data was checked.
    """
    grouped: dict[str, list[Case]] = {}
    for case in sorted(cases, key=lambda case: float(case["bytes"] * case["size_scale"])):
        if case["busbw_gbyte_per_s"] is not None and times_count(case["data_is_right"]):
            grouped.setdefault(_name(case), []).append(case)
    return grouped


def _name(case: Case) -> str:
    """Return fabric, collective, algorithm, variant, and a generator other than the agents.

    The numbers of partners at once and of slices are in the name of the case, if it has them, and
    NCCL's choice, which may be another algorithm for each size.
    """
    how = [part for part in case["case"].split("/") if part.startswith(HOW)]
    other = case["generator"] if case["generator"] != Generator.AGENT else None
    chosen = case["case"].split("/")[2] == NCCL
    parts = case["fabric"]["kind"], case["collective"], NCCL if chosen else case["algorithm"]
    return "/".join(filter(None, (*parts, *how, case["variant"], other)))


def _row(case: Case) -> dict[str, Any]:
    """Return a result under the names of nccl-tests."""
    size, collective = round(case["bytes"] * case["size_scale"]), Collective(case["collective"])
    # Elements are counted for one rank's part; a size is a whole number of them.
    parts, whole = (case["gpus"], PART_ELEMENTS) if collective.has_shards else (1, 1)
    count = size // ELEMENT_BYTES // parts // whole * whole
    timed = {
        "time": case["real_s"] * 1e6,
        "alg_bw": case["algbw_gbyte_per_s"],
        "bus_bw": case["busbw_gbyte_per_s"],
        "nwrong": None,
    }
    return {
        "size": count * ELEMENT_BYTES * parts,
        "count": count,
        "type": "float",
        # sendrecv.cu names the default operation, although it reduces nothing.
        "redop": "sum" if collective.reduces or collective is Collective.SEND_RECV else "none",
        "root": str(ROOT) if collective.has_root else "-1",
        "out_of_place": timed,
        "in_place": timed,
    }


def _object(name: str, cases: Sequence[Case]) -> dict[str, Any]:
    return {
        "name": name,
        "ranks": cases[0]["gpus"],
        "results": [_row(case) for case in cases],
        # A word, as `jsonBool` in src/util.cu writes it.
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": _average(cases), "okay": "unchecked"},
    }


def _average(cases: Sequence[Case]) -> float:
    return fmean(case["busbw_gbyte_per_s"] for case in cases)


def rows_as_printed(name: str, cases: Sequence[Case]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"# Railbed: {name}, {cases[0]['gpus']} ranks"
    yield PLACES
    yield "#" + _line(COLUMNS)[1:]
    yield "#" + _line(UNITS)[1:]
    for row in map(_row, cases):
        timed = row["out_of_place"]
        fields = ("time", 7), ("alg_bw", 6), ("bus_bw", 6)
        cells = [_fitting(timed[key], width) for key, width in fields]
        first = [row[key] for key in ("size", "count", "type", "redop", "root")]
        yield _line([*first, *[*cells, NOT_CHECKED] * 2])
    yield "# Out of bounds values : 0 OK"
    yield f"# Avg bus bandwidth    : {_average(cases):g}"


def _fitting(value: float, width: int) -> str:
    """Format a number as `getFloatStr` does in src/util.cu: with as many digits as fit."""
    forms = (f"{value:{form}}" for form in (".2f", ".1f", ".0f"))
    return next((form for form in forms if len(form) <= width), f"{value:.1e}")


def _line(cells: Sequence[object]) -> str:
    return " ".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True))
