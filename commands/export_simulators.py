"""A run's steps for simulators: Chakra execution traces, and connection matrices of htsim.

The steps of a case are built again from the run's scenario, and must have the recorded digest.
Times are those of the counted execution with the median completion time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from linux.files.user_files import give, make_folder, write_bytes
from model.errors import InputError, Problem
from model.workload.schedule import Steps
from model.workload.trace import first_nodes, trace_of
from model.workload.transfers.columns import NONE, Rows, Transfers
from results.report.run_data import Columns, read_run
from results.store.records import read_json, reading
from results.store.runs import folder_name, read_result
from scenarios.load import load_of_run
from scenarios.scenario import Scenario
from traffic_gen.traces.formats.chakra_writing import Span, chakra_files

PS_PER_NS = 1000


@dataclass(frozen=True)
class Ran:
    """The executed steps of a case, and their transfers by column, in the order of the steps.

    A transfer ends for its receiver when it has arrived, for its sender when it is confirmed.
    """

    name: str
    steps: Steps
    moved: Columns


def export_chakra(run: Path, folder: Path) -> list[Path]:
    """Write `CASE.RANK.et` for each rank of each case, in emulated bytes and times."""
    return [
        _written(folder / f"{ran.name}.{rank}.et", content)
        for ran in cases_that_ran(run)
        for rank, content in enumerate(
            chakra_files(trace_of(_in_turn(ran), ran.steps.gpus), _spans(ran))
        )
    ]


def _in_turn(ran: Ran) -> Transfers:
    """Return the steps, of which each waits for the one before it on its processor, too."""
    transfers = ran.steps.transfers
    steps, after = np.flatnonzero(transfers.processor != NONE), transfers.after
    places = transfers.source[steps], transfers.processor[steps]
    steps = steps[np.lexsort((ran.moved["started_ns"][steps], *places))]
    earlier, later = steps[:-1], steps[1:]
    new = np.equal(*transfers.source[[earlier, later]])
    new &= np.equal(*transfers.processor[[earlier, later]]) & ~after.have(later, earlier)
    values = np.concatenate([after.values, earlier[new]])
    rows = np.concatenate([after.row, later[new]])
    return replace(transfers, after=Rows.grouped(values, rows, len(transfers)))


def _spans(ran: Ran) -> dict[int, Span]:
    """Return the begin and the length of every node in microseconds."""
    spans: dict[int, Span] = {}
    computes = ran.steps.transfers.is_compute.tolist()
    times = (ran.moved[f"{key}_ns"].tolist() for key in ("started", "arrived", "confirmed"))
    firsts = first_nodes(ran.steps.transfers).tolist()
    for first, is_compute, begun_ns, arrived_ns, confirmed_ns in zip(
        firsts, computes, *times, strict=True
    ):
        spans[first] = begun_ns // 1000, (confirmed_ns - begun_ns) // 1000
        if not is_compute:
            spans[first + 1] = begun_ns // 1000, (arrived_ns - begun_ns) // 1000
    return spans


def export_htsim(run: Path, folder: Path) -> list[Path]:
    """Write `CASE.cm` of each case, in emulated bytes and times.

    A connection begins when its transfer did, in picoseconds: triggers of htsim cannot let one
    connection wait for several and begin several, as transfers do.
    """
    return [
        _written(folder / f"{ran.name}.cm", "\n".join((*_matrix(ran), "")).encode())
        for ran in cases_that_ran(run)
    ]


def _matrix(ran: Ran) -> Iterator[str]:
    """Yield the lines of a connection matrix, without steps of compute."""
    sent = [step for step in ran.steps.transfers if not step.is_compute]
    yield f"Nodes {ran.steps.gpus}"
    yield f"Connections {len(sent)}"
    for number, step in enumerate(sent, start=1):
        start_ps = int(ran.moved["started_ns"][step.id]) * PS_PER_NS
        pair = f"{step.source}->{step.destination}"
        yield f"{pair} id {number} start {start_ps} size {step.size_bytes}"


def _written(place: Path, content: bytes) -> Path:
    make_folder(place.parent)
    write_bytes(place, content)
    give(place)
    return place


def cases_that_ran(run: Path) -> Iterator[Ran]:
    """Yield the cases without faults with a complete execution; raise `InputError` without any."""
    result = read_result(run)
    with reading(run):
        cases = [case for case in result["cases"] if not case.get("incomplete")]
    if not cases:
        what = "needs a complete execution of a case without faults"
        raise InputError(Problem(str(run), what, "use --format json"))
    data, scenario = read_run(run), load_of_run(run)
    with reading(run):
        for case in cases:
            name = case["case"]
            yield Ran(folder_name(name), _steps(run, scenario, case), data.cases[name].median)


def _steps(run: Path, scenario: Scenario, ran: Mapping[str, Any]) -> Steps:
    """Build the steps of a case again; raise `InputError` if the run executed other steps."""
    name = ran["case"]
    noted = read_json(run / folder_name(name) / "prediction.json")["schedule_digest"]
    for case in (case for case in scenario.cases if case.name == name):
        spec = replace(scenario.spec_of(case.kind), bandwidth_scale=ran["bandwidth_scale"])
        steps = replace(case, size_scale=ran["size_scale"]).schedule(spec)
        if steps.digest == noted:
            return steps
    what = f"{name}: Railbed or the trace has changed since the run, and with it the steps"
    raise InputError(Problem(str(run), what, "run it again"))
