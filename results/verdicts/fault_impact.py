"""What a fault did to a job: judged, as a JSON object, and as a table."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from math import inf
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from results.tables.style import VERDICT_STYLES
from results.verdicts.fidelity import Fidelity
from results.verdicts.model_comparison import CaseResult
from results.verdicts.verdict import Verdict, worst

LEGEND = (
    "Blackout: of the longest-cut-off pair that has another way. Completion times in emulated "
    "seconds: before the fault, while it happens, with it, after it; modeled with it; measured "
    "over modeled with it. Lost: probes of pairs that it does not touch."
)
COLUMNS = (
    ("blackout", 8),
    ("healthy", 7),
    ("during", 6),
    ("faulty", 6),
    ("after", 6),
    ("modeled", 7),
    ("ratio", 5),
    ("lost", 4),
)


@dataclass(frozen=True)
class FaultTimes:
    """One fault, from the start of the execution, and how the controller answered it.

    The answer is in milliseconds after the fault; `None` where it did not need to.
    """

    fault: str
    begun_s: float
    ended_s: float | None
    detected_ms: float | None = None
    computed_ms: float | None = None
    sent_ms: float | None = None
    confirmed_ms: float | None = None


@dataclass(frozen=True)
class Failure:
    """A case with faults. Phases that this fault does not have are `None`.

    `struck_s` is the execution in which it happened, with all that the job did about it; `struck`
    is what was observed of it.
    `blackout_ms` is the longest of the probed pairs that the fault hit and that have another way;
    infinity if no end of it was seen, `None` if there are no such pairs.
    """

    case: str
    fault: str
    where: str
    fabric: str
    reaction: str
    healthy: CaseResult
    struck: Fidelity
    struck_s: float | None
    faulty: CaseResult | None
    after: CaseResult | None
    blackout_ms: float | None
    probed_pairs: int
    lost_probes_untouched: int
    untouched_pairs: int
    times: tuple[FaultTimes, ...]
    blackout_limit_ms: float | None
    struck_complete: bool

    @property
    def reasons(self) -> tuple[tuple[Verdict, str], ...]:
        """What is wrong, and how bad it is."""
        return tuple(self._reasons())

    def _reasons(self) -> Iterator[tuple[Verdict, str]]:
        if not self.struck_complete:
            yield Verdict.FAIL, "the execution in which it happened did not complete"
        if self.lost_probes_untouched:
            yield (
                Verdict.FAIL,
                f"{self.lost_probes_untouched} probes of pairs that it does not touch are lost",
            )
        limit, blackout_ms = self.blackout_limit_ms, self.blackout_ms
        if blackout_ms == inf:
            yield Verdict.FAIL, "a pair that has another way was not reached again"
        elif limit is not None and blackout_ms is not None and blackout_ms > limit:
            yield Verdict.FAIL, f"a blackout of {blackout_ms:.0f} ms, more than {limit:g} ms"
        for phase, fidelity in (("healthy", self.healthy.fidelity), ("struck", self.struck)):
            for verdict, reason in fidelity.found:
                yield verdict, f"{phase}: {reason}"
        for phase, result in (("faulty", self.faulty), ("after", self.after)):
            for verdict, reason in result.found if result is not None else ():
                yield verdict, f"{phase}: {reason}"

    @property
    def verdict(self) -> Verdict:
        """The worst of what was found."""
        return worst(verdict for verdict, _ in self.reasons)


FAILURE_KEYS = (
    "scenario",
    "case",
    "fault",
    "where",
    "fabric",
    "reaction",
    "blackout_ms",
    "healthy_s",
    "modeled_healthy_s",
    "struck_s",
    "faulty_s",
    "modeled_faulty_s",
    "ratio",
    "after_s",
    "probed_pairs",
    "untouched_pairs",
    "lost_probes_untouched",
    "times",
    "verdict",
    "reasons",
    "fidelity",
)


def failure_object(scenario: str, failure: Failure) -> dict[str, Any]:
    """A failure as `run --json` and `failures --json` print it; times in emulated seconds."""
    faulty, after = failure.faulty, failure.after
    return {
        "scenario": scenario,
        "case": failure.case,
        "fault": failure.fault,
        "where": failure.where,
        "fabric": failure.fabric,
        "reaction": failure.reaction,
        "blackout_ms": None if failure.blackout_ms == inf else failure.blackout_ms,
        "healthy_s": failure.healthy.measured.median,
        "modeled_healthy_s": failure.healthy.modeled_s,
        "struck_s": failure.struck_s,
        "faulty_s": faulty.measured.median if faulty else None,
        "modeled_faulty_s": faulty.modeled_s if faulty else None,
        "ratio": faulty.ratio if faulty else None,
        "after_s": after.measured.median if after else None,
        "probed_pairs": failure.probed_pairs,
        "untouched_pairs": failure.untouched_pairs,
        "lost_probes_untouched": failure.lost_probes_untouched,
        "times": [asdict(times) for times in failure.times],
        "verdict": failure.verdict.value,
        "reasons": [reason for _, reason in failure.reasons],
        "fidelity": dict(_fidelity(failure)),
    }


def _fidelity(failure: Failure) -> Iterator[tuple[str, dict[str, Any]]]:
    """What was observed of each phase."""
    yield "healthy", failure.healthy.fidelity.plain()
    yield "struck", failure.struck.plain()
    for phase, result in (("faulty", failure.faulty), ("after", failure.after)):
        if result is not None:
            yield phase, result.fidelity.plain()


def lost_experiment(scenario: str, cause: str) -> dict[str, Any]:
    """The object of an experiment that ended early."""
    unknown: dict[str, Any] = dict.fromkeys(FAILURE_KEYS)
    known = {
        "scenario": scenario,
        "fault": scenario,
        "times": [],
        "reasons": [cause],
        "fidelity": {},
    }
    return {**unknown, **known, "verdict": Verdict.FAIL.value}


def print_failures(rows: Sequence[dict[str, Any]], console: Console) -> None:
    """Below each fault, and what the job does about it, a row for each fabric."""
    for heading, together in groupby(rows, _heading):
        console.print(Text(heading, "bold"))
        console.print(_table(list(together)))
    console.print(Text(LEGEND, "dim"))
    for row in (row for row in rows if row["verdict"] != "pass"):
        for reason in row["reasons"]:
            what = f"{row['verdict']}: {_heading(row)}: {row['fabric']}: {reason}"
            console.print(Text(what, VERDICT_STYLES[row["verdict"]]))


def _heading(row: dict[str, Any]) -> str:
    known = (row[key] for key in ("fault", "where", "reaction"))
    return " · ".join(word for word in known if word)


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True, min_width=16)
    for heading, width in COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True, min_width=width)
    table.add_column("")
    for row in rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: dict[str, Any]) -> Iterator[str | Text]:
    yield f"  {row['fabric'] or ''}"
    yield _number(row["blackout_ms"], ".0f", " ms")
    for key in ("healthy_s", "struck_s", "faulty_s", "after_s", "modeled_faulty_s", "ratio"):
        yield _number(row[key], ".3f")
    yield _number(row["lost_probes_untouched"], "d")
    yield Text(row["verdict"], style=VERDICT_STYLES[row["verdict"]])


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{form}}{unit}"
