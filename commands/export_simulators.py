"""A run's steps for simulators: Chakra execution traces, and connection matrices of htsim.

The steps of a case are built again from the run's scenario, and must have the recorded digest.
Times are those of the counted execution with the median completion time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from linux.files.user_files import give, make_folder, write_bytes
from model.arrays import Ints
from model.errors import InputError, Problem
from model.workload.schedule import Steps
from model.workload.trace import first_nodes, trace_of
from results.store.raw_tables import EXECUTIONS, TRANSFERS, read_table, rows_of
from results.store.records import read_json, reading
from results.store.runs import folder_name, read_result
from scenarios.load import load
from scenarios.scenario import Scenario
from traffic_gen.traces.formats.chakra_writing import Span, chakra_files

PS_PER_NS = 1000


@dataclass(frozen=True)
class Ran:
    """The executed steps of a case, with their begins and ends in nanoseconds.

    A transfer ends for its receiver when it has arrived, for its sender when it is confirmed.
    """

    name: str
    steps: Steps
    started_ns: Ints
    arrived_ns: Ints
    confirmed_ns: Ints


def export_chakra(run: Path, folder: Path) -> list[Path]:
    """Write `CASE.RANK.et` for each rank of each case, in emulated bytes and times."""
    written = []
    for ran in cases_that_ran(run):
        trace = trace_of(ran.steps.transfers, ran.steps.gpus)
        for rank, content in enumerate(chakra_files(trace, _spans(ran))):
            written.append(_written(folder / f"{ran.name}.{rank}.et", content))
    return written


def _spans(ran: Ran) -> dict[int, Span]:
    """Return the begin and the length of every node in microseconds."""
    spans: dict[int, Span] = {}
    computes = ran.steps.transfers.is_compute.tolist()
    ends = zip(ran.confirmed_ns.tolist(), ran.arrived_ns.tolist(), strict=True)
    steps = zip(first_nodes(ran.steps.transfers).tolist(), ran.started_ns.tolist(), strict=True)
    for (first, begun_ns), (confirmed_ns, arrived_ns), is_compute in zip(
        steps, ends, computes, strict=True
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
        start_ps = int(ran.started_ns[step.id]) * PS_PER_NS
        pair = f"{step.source}->{step.destination}"
        yield f"{pair} id {number} start {start_ps} size {step.size_bytes}"


def _written(place: Path, content: bytes) -> Path:
    make_folder(place.parent)
    write_bytes(place, content)
    give(place)
    return place


def cases_that_ran(run: Path) -> Iterator[Ran]:
    """Yield the cases of a complete run without faults; raise `InputError` if it has none."""
    result = read_result(run)
    if result.get("cases") == []:
        raise InputError(Problem(str(run), "needs a case without faults", "use --format json"))
    transfers, executions = read_table(run, TRANSFERS), read_table(run, EXECUTIONS)
    scenario = load(run / "scenario.yaml")
    with reading(run):
        for case in result["cases"]:
            name = case["case"]
            number = _median_execution(rows_of(run, EXECUTIONS, executions, name))
            moved = rows_of(run, TRANSFERS, transfers, name)
            steps = _steps(run, scenario, case["bandwidth_scale"], case["size_scale"], name)
            mine = moved["repeat"] == number
            order = np.argsort(moved["transfer"][mine])
            columns = (
                moved[f"{key}_ns"][mine][order] for key in ("started", "arrived", "confirmed")
            )
            yield Ran(
                folder_name(name), steps, *(np.asarray(column, np.int64) for column in columns)
            )


def _median_execution(executions: dict[str, np.ndarray]) -> int:
    """Return the number of the counted execution with the median time."""
    counts = executions["complete"] & ~executions["warmup"] & ~executions["disturbed"]
    chosen = counts if counts.any() else executions["complete"]
    order = np.argsort(executions["completion_s"][chosen], kind="stable")
    return int(executions["number"][chosen][order[(len(order) - 1) // 2]])


def _steps(
    run: Path, scenario: Scenario, bandwidth_scale: float, size_scale: float, name: str
) -> Steps:
    """Build the steps of a case again; raise `InputError` if the run executed other steps."""
    noted = read_json(run / folder_name(name) / "prediction.json")["schedule_digest"]
    for case in scenario.cases:
        if case.name == name:
            emulated = replace(scenario.spec_of(case.kind), bandwidth_scale=bandwidth_scale)
            steps = replace(case, size_scale=size_scale).schedule(emulated)
            if steps.digest == noted:
                return steps
    what = f"{name}: this version of Railbed, or its trace, has other steps than those executed"
    raise InputError(Problem(str(run), what))
