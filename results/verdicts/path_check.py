"""Judge whether packets took the intended paths, and stayed on their rails."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from model.fabric.spec import FabricKind
from model.fabric.topology import Gpu, Hop
from model.measurement.records import Trace
from results.store.records import plain
from results.verdicts.verdict import Verdict, worst

SCHEMA = "railbed.verify/1"
NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class PairCheck:
    """The probes of one ordered pair, and the hops that each should have taken.

    Probes of several UDP source ports take the paths `by_port` in turn.
    """

    source: Gpu
    destination: Gpu
    by_port: tuple[tuple[Hop, ...], ...]
    traces: tuple[Trace, ...]

    @property
    def intended(self) -> tuple[Hop, ...]:
        """The path of the first stray probe; of all if there are none."""
        return self._strays[0][0] if self._strays else self.by_port[0]

    @property
    def stray(self) -> tuple[Trace, ...]:
        """The probes that took another path, or did not arrive."""
        return tuple(trace for _, trace in self._strays)

    @property
    def _strays(self) -> list[tuple[tuple[Hop, ...], Trace]]:
        probes = zip(cycle(self.by_port), self.traces, strict=False)
        return [(path, trace) for path, trace in probes if trace != Trace(path, True)]

    @property
    def found(self) -> tuple[Hop, ...]:
        """The most common path of stray probes; the intended path if there are none."""
        paths = Counter(trace.hops for trace in self.stray)
        return paths.most_common(1)[0][0] if paths else self.intended


@dataclass(frozen=True)
class Mismatch:
    """A pair with stray probes, and the hops of most of these, in words."""

    source: str
    destination: str
    intended: tuple[str, ...]
    found: tuple[str, ...]
    probes: int
    stray: int
    arrived: int


def mismatch(pair: PairCheck) -> Mismatch:
    """Return what is wrong with a pair."""
    return Mismatch(
        source=pair.source.name,
        destination=pair.destination.name,
        intended=tuple(map(_hop_name, pair.intended)),
        found=tuple(map(_hop_name, pair.found)),
        probes=len(pair.traces),
        stray=len(pair.stray),
        arrived=sum(trace.arrived for trace in pair.traces),
    )


def _hop_name(hop: Hop) -> str:
    return f"{hop.sender}->{hop.receiver}"


@dataclass(frozen=True)
class IsolationCheck:
    """The bytes that switches forwarded to addresses of other rails, and of their own.

    Without bytes, it is not applicable: spine switches connect rails; with one HB domain, rails
    carry nothing; and where GPUs are missing, traffic for their rails crosses from others.
    """

    verdict: str = NOT_APPLICABLE
    foreign_bytes: int | None = None
    own_bytes: int | None = None


def isolation_check(own_bytes: int, foreign_bytes: int) -> IsolationCheck:
    """Fail if any byte crossed rails; or if none was forwarded at all, which proves nothing."""
    isolated = foreign_bytes == 0 and own_bytes > 0
    return IsolationCheck(Verdict.PASS if isolated else Verdict.FAIL, foreign_bytes, own_bytes)


@dataclass(frozen=True)
class FabricCheck:
    """Both checks of a fabric: the paths of all ordered pairs, and the isolation of rails."""

    kind: FabricKind
    verdict: Verdict
    pairs: int
    as_intended: int
    mismatches: tuple[Mismatch, ...]
    rail_isolation: IsolationCheck


def fabric_check(
    kind: FabricKind, pairs: int, mismatches: Sequence[Mismatch], isolation: IsolationCheck
) -> FabricCheck:
    """Fail if a pair has stray probes, or rails are not isolated."""
    failed = mismatches or isolation.verdict == Verdict.FAIL
    return FabricCheck(
        kind=kind,
        verdict=Verdict.FAIL if failed else Verdict.PASS,
        pairs=pairs,
        as_intended=pairs - len(mismatches),
        mismatches=tuple(mismatches),
        rail_isolation=isolation,
    )


@dataclass(frozen=True)
class VerifyResult:
    """The object that `verify --json` prints and a run with path checks stores."""

    schema: str
    scenario: str
    verdict: Verdict
    fabrics: Sequence[FabricCheck]


def verify_object(scenario: str, fabrics: Sequence[FabricCheck]) -> dict[str, Any]:
    """Return the JSON object of checked fabrics."""
    verdict = worst(fabric.verdict for fabric in fabrics)
    return plain(VerifyResult(SCHEMA, scenario, verdict, fabrics))
