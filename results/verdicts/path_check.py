"""Judge whether packets took the intended paths, and stayed on their rails."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from model.fabric.spec import FabricKind
from model.fabric.topology import Gpu, Hop
from model.measurement.records import ProbePath
from results.store.records import plain
from results.verdicts.verdict import Verdict, worst

SCHEMA = "railbed.verify/1"
NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Mismatch:
    """A pair with stray probes: the path of the first of these, and that of most, in words."""

    source: str
    destination: str
    intended: tuple[str, ...]
    found: tuple[str, ...]
    probes: int
    stray: int
    arrived: int


def mismatch(
    source: Gpu, destination: Gpu, by_port: Sequence[tuple[Hop, ...]], traces: Sequence[ProbePath]
) -> Mismatch | None:
    """Return what is wrong with a pair's probes; `None` if all arrived by their intended paths.

    Probes of several UDP source ports take the paths `by_port` in turn.
    """
    probes = zip(cycle(by_port), traces, strict=False)
    strays = [(path, trace) for path, trace in probes if trace != ProbePath(path, True)]
    if not strays:
        return None
    ((found, _),) = Counter(trace.hops for _, trace in strays).most_common(1)
    intended, taken = (
        tuple(f"{hop.sender}->{hop.receiver}" for hop in hops) for hops in (strays[0][0], found)
    )
    return Mismatch(
        source=source.name,
        destination=destination.name,
        intended=intended,
        found=taken,
        probes=len(traces),
        stray=len(strays),
        arrived=sum(trace.arrived for trace in traces),
    )


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


@dataclass
class FabricCheck:
    """Both checks of a fabric: the paths of all ordered pairs, and the isolation of rails."""

    kind: FabricKind
    verdict: Verdict = field(init=False)
    pairs: int
    as_intended: int = field(init=False)
    mismatches: Sequence[Mismatch]
    rail_isolation: IsolationCheck

    def __post_init__(self) -> None:
        """Fail if a pair has stray probes, or rails are not isolated."""
        failed = self.mismatches or self.rail_isolation.verdict == Verdict.FAIL
        self.verdict = Verdict.FAIL if failed else Verdict.PASS
        self.as_intended = self.pairs - len(self.mismatches)


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
