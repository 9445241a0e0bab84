"""The ways that packets really took, judged: the schema `railbed.verify/1` and its table."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from model.fabric.spec import FabricKind
from model.fabric.topology import Gpu, Hop
from model.measurement.traces import Trace
from results.tables.style import VERDICT_STYLES
from results.verdicts.verdict import Verdict, worst

SCHEMA = "railbed.verify/1"
NOT_APPLICABLE = "not applicable"
SHOWN_MISMATCHES = 20
_STYLES = {**VERDICT_STYLES, NOT_APPLICABLE: "dim"}


@dataclass(frozen=True)
class PairCheck:
    """The probes of one ordered pair, and the hops that they should have taken."""

    source: Gpu
    destination: Gpu
    intended: tuple[Hop, ...]
    traces: tuple[Trace, ...]

    @property
    def stray(self) -> tuple[Trace, ...]:
        """The probes that took another way, or did not arrive."""
        return tuple(trace for trace in self.traces if trace != Trace(self.intended, True))

    @property
    def found(self) -> tuple[Hop, ...]:
        """The way of most of those that are stray; if there are none, the intended one."""
        ways = Counter(trace.hops for trace in self.stray)
        return ways.most_common(1)[0][0] if ways else self.intended


@dataclass(frozen=True)
class PathCheck:
    """All ordered pairs of a fabric: how many there are, and those that are not as intended."""

    pairs: int
    mismatches: tuple[PairCheck, ...]

    @property
    def verdict(self) -> Verdict:
        """Fail if any pair is not as intended."""
        return Verdict.FAIL if self.mismatches else Verdict.PASS


@dataclass(frozen=True)
class IsolationCheck:
    """The bytes that switches forwarded to addresses of their own rails, and to any others."""

    own_bytes: int
    foreign_bytes: int

    @property
    def verdict(self) -> Verdict:
        """Fail if any byte crossed rails; or if none was forwarded at all, which proves nothing."""
        isolated = self.foreign_bytes == 0 and self.own_bytes > 0
        return Verdict.PASS if isolated else Verdict.FAIL


@dataclass(frozen=True)
class FabricCheck:
    """Both checks of one fabric. Spine switches join rails on purpose: there is no isolation."""

    kind: FabricKind
    paths: PathCheck
    isolation: IsolationCheck | None

    @property
    def verdict(self) -> Verdict:
        """The worse of both."""
        return worst(check.verdict for check in (self.paths, self.isolation) if check is not None)


def verify_object(scenario: str, fabrics: Sequence[FabricCheck]) -> dict[str, Any]:
    """What `verify --json` prints, and a run that checks paths keeps."""
    return {
        "schema": SCHEMA,
        "scenario": scenario,
        "verdict": worst(fabric.verdict for fabric in fabrics).value,
        "fabrics": [_fabric_object(fabric) for fabric in fabrics],
    }


def _fabric_object(fabric: FabricCheck) -> dict[str, Any]:
    pairs, mismatches = fabric.paths.pairs, fabric.paths.mismatches
    return {
        "kind": fabric.kind.value,
        "verdict": fabric.verdict.value,
        "pairs": pairs,
        "as_intended": pairs - len(mismatches),
        "mismatches": [_mismatch_object(pair) for pair in mismatches],
        "rail_isolation": _isolation_object(fabric.isolation),
    }


def _mismatch_object(pair: PairCheck) -> dict[str, Any]:
    return {
        "source": pair.source.name,
        "destination": pair.destination.name,
        "intended": [_hop_name(hop) for hop in pair.intended],
        "found": [_hop_name(hop) for hop in pair.found],
        "probes": len(pair.traces),
        "stray": len(pair.stray),
        "arrived": sum(trace.arrived for trace in pair.traces),
    }


def _hop_name(hop: Hop) -> str:
    return f"{hop.sender}->{hop.receiver}"


def _isolation_object(isolation: IsolationCheck | None) -> dict[str, Any]:
    if isolation is None:
        return {"verdict": NOT_APPLICABLE, "foreign_bytes": None, "own_bytes": None}
    return {
        "verdict": isolation.verdict.value,
        "foreign_bytes": isolation.foreign_bytes,
        "own_bytes": isolation.own_bytes,
    }


def print_verify(result: dict[str, Any], console: Console) -> None:
    """Print the table, and a line for each thing that is not as intended, up to some number."""
    console.print(_table(result["fabrics"]))
    for fabric in result["fabrics"]:
        for line in (*_astray(fabric["mismatches"]), *_crossing(fabric["rail_isolation"])):
            console.print(Text(f"fail: {fabric['kind']}: {line}", _STYLES["fail"]), soft_wrap=True)


def _table(fabrics: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading in (
        "fabric",
        "pairs",
        "as intended",
        "rail isolation",
        "bytes across rails",
        "verdict",
    ):
        table.add_column(heading)
    for fabric in fabrics:
        isolation = fabric["rail_isolation"]
        table.add_row(
            fabric["kind"],
            str(fabric["pairs"]),
            str(fabric["as_intended"]),
            _styled(isolation["verdict"]),
            "" if isolation["foreign_bytes"] is None else str(isolation["foreign_bytes"]),
            _styled(fabric["verdict"]),
        )
    return table


def _styled(verdict: str) -> Text:
    return Text(verdict, _STYLES[verdict])


def _astray(mismatches: Sequence[dict[str, Any]]) -> Iterator[str]:
    for entry in mismatches[:SHOWN_MISMATCHES]:
        pair = f"{entry['source']} to {entry['destination']}"
        intended, found = (" ".join(entry[key]) or "nothing" for key in ("intended", "found"))
        stray = f"{entry['stray']} of {entry['probes']} probes astray, {entry['arrived']} arrived"
        yield f"{pair}: intended {intended}; found {found}; {stray}"
    if len(mismatches) > SHOWN_MISMATCHES:
        yield f"and {len(mismatches) - SHOWN_MISMATCHES} more pairs"


def _crossing(isolation: dict[str, Any]) -> Iterator[str]:
    if isolation["verdict"] == Verdict.FAIL:
        if isolation["foreign_bytes"]:
            yield f"rails are not isolated: {isolation['foreign_bytes']} bytes crossed"
        else:
            yield "no switch forwarded anything on its own rail: isolation is not shown"
