"""Judge whether packets took the intended paths, and stayed on their rails; the JSON object."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from model.fabric.spec import FabricKind
from model.fabric.topology import Gpu, Hop
from model.measurement.records import Trace
from results.verdicts.verdict import Verdict, worst

SCHEMA = "railbed.verify/1"
NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class PairCheck:
    """The probes of one ordered pair, and the hops that they should have taken."""

    source: Gpu
    destination: Gpu
    intended: tuple[Hop, ...]
    traces: tuple[Trace, ...]

    @property
    def stray(self) -> tuple[Trace, ...]:
        """The probes that took another path, or did not arrive."""
        return tuple(trace for trace in self.traces if trace != Trace(self.intended, True))

    @property
    def found(self) -> tuple[Hop, ...]:
        """The most common path of stray probes; the intended path if there are none."""
        paths = Counter(trace.hops for trace in self.stray)
        return paths.most_common(1)[0][0] if paths else self.intended


@dataclass(frozen=True)
class PathCheck:
    """The number of ordered pairs of a fabric, and the pairs with stray probes."""

    pairs: int
    mismatches: tuple[PairCheck, ...]

    @property
    def verdict(self) -> Verdict:
        """Fail if any pair has stray probes."""
        return Verdict.FAIL if self.mismatches else Verdict.PASS


@dataclass(frozen=True)
class IsolationCheck:
    """The bytes that switches forwarded to addresses of their own rails, and to all others."""

    own_bytes: int
    foreign_bytes: int

    @property
    def verdict(self) -> Verdict:
        """Fail if any byte crossed rails; or if none was forwarded at all, which proves nothing."""
        isolated = self.foreign_bytes == 0 and self.own_bytes > 0
        return Verdict.PASS if isolated else Verdict.FAIL


@dataclass(frozen=True)
class FabricCheck:
    """Both checks of a fabric; `isolation` is `None` where nothing is to be isolated.

    Spine switches connect rails; with one HB domain, rails carry nothing.
    """

    kind: FabricKind
    paths: PathCheck
    isolation: IsolationCheck | None

    @property
    def verdict(self) -> Verdict:
        """The worse verdict of both checks."""
        return worst(check.verdict for check in (self.paths, self.isolation) if check is not None)


def verify_object(scenario: str, fabrics: Sequence[FabricCheck]) -> dict[str, Any]:
    """Return the object that `verify --json` prints and a run with path checks stores."""
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
