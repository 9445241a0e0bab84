"""The section of failure experiments, from their JSON objects."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from results.sections.formats import number_or_dash
from results.sections.section import Case, Columns, Marked, Row, Section, reasons, verdict

FAILURES: Columns = (
    ("blackout", lambda row: number_or_dash(row["blackout_ms"], ".0f", " ms")),
    ("baseline", lambda row: number_or_dash(row["baseline_s"], ".3f")),
    ("during", lambda row: number_or_dash(row["during_fault_s"], ".3f")),
    ("degraded", lambda row: number_or_dash(row["degraded_s"], ".3f")),
    ("recovered", lambda row: number_or_dash(row["recovered_s"], ".3f")),
    ("model", lambda row: number_or_dash(row["modeled_degraded_s"], ".3f")),
    ("ratio", lambda row: number_or_dash(row["ratio"], ".3f")),
    ("lost", lambda row: number_or_dash(row["lost_probes_unaffected"], "d")),
    ("", verdict),
)


def failures_section(failures: Sequence[Case]) -> Section:
    """A row for each fabric, grouped by experiment, then the reasons."""
    rows: list[Row] = []
    for heading, together in groupby(failures, _heading):
        rows.append((heading,))
        rows += ((row["fabric"] or "", *(cell(row) for _, cell in FAILURES)) for row in together)
    worse = (row for row in failures if row["verdict"] != "pass")
    return Section(
        "Failure experiments",
        ("fabric", *(name for name, _ in FAILURES)),
        rows,
        "Blackout: the longest of the affected pairs that have another path. Completion times, in "
        "emulated seconds: before the fault, of the execution in which it begins, with the fault "
        "throughout, after it. Model, ratio: of the degraded phase. Lost: probes of unaffected "
        "pairs. Replay: no prediction, but a model that is told when the paths of this execution "
        "changed.",
        (*_replays(failures), *reasons(worse, lambda row: f"{_heading(row)}: {row['fabric']}")),
    )


def _replays(failures: Sequence[Case]) -> Iterator[Marked]:
    """Yield a line for each execution that has no prediction, only a replay."""
    for row in failures:
        if row["replay_ratio"] is not None:
            line = (
                f"{row['fabric']}: replay {row['modeled_replay_s']:.3f}, "
                f"during / replay {row['replay_ratio']:.3f} {row['replay_verdict']}"
            )
            yield Marked(line, row["replay_verdict"])


def _heading(row: Case) -> str:
    """Name the experiment; then the component, its place, and the recovery strategy."""
    known = (row[key] for key in ("fault", "where", "strategy"))
    details = " · ".join(word for word in known if word)
    return ": ".join(filter(None, (row["scenario"], details)))
