"""The benchmarks behind the figures of docs/reference/measurements.md: each yields rows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from linux.files.program_files import ROOT


class Needs(IntFlag):
    """What a benchmark needs of its machine."""

    NOTHING = 0
    FABRIC = 1
    CONTAINERS = 2 | FABRIC
    # The machine itself is measured.
    REAL_CLOCK = 4 | FABRIC
    # Processor time is taken from the machine.
    NOISE = 8 | REAL_CLOCK


@dataclass(frozen=True)
class Benchmark:
    """A function `MODULE.FUNCTION` of this package, imported when it measures, and its needs.

    The function gets the store of runs and the `options`; `stores` says whether it stores any.
    """

    function: str
    needs: Needs = Needs.FABRIC
    options: Mapping[str, Any] = field(default_factory=dict)
    stores: bool = False

    @property
    def module(self) -> str:
        """Name of the function's module in this package."""
        return self.function.partition(".")[0]

    def measure(self, store: Path, **options: Any) -> Iterator[dict[str, Any]]:
        """Yield the rows; `options` come before those of the entry."""
        rows: Iterator[dict[str, Any]] = resolve_name(f"{__name__}.{self.function}")(
            store, **{**self.options, **options}
        )
        return rows


def _accuracy(name: str, needs: Needs = Needs.CONTAINERS) -> Benchmark:
    """A benchmark of one or several scenarios of the library."""
    return Benchmark("accuracy.accuracy", needs, {"name": name}, stores=True)


def code_of(name: str) -> tuple[str, ...]:
    """The benchmark's module, and its scenario if it has one: below the repository's root."""
    scenario = Path(f"scenarios/library/{name}.yaml")
    module = f"studies/benchmarks/{BENCHMARKS[name].module}.py"
    return (module, str(scenario)) if (ROOT / scenario).exists() else (module,)


# Scenarios of the library that are benchmarks as they stand.
SCENARIOS = (
    "training-iteration",
    "pipeline-schedules",
    "two-tier-domains",
    "moe-skew",
    "paper-all-to-all",
    "communicators",
    "generators",
    "inference",
    "several-jobs",
)
BENCHMARKS = {
    "fidelity": _accuracy("fidelity"),
    "startup": Benchmark("costs.startup", Needs.CONTAINERS),
    "growth": Benchmark("costs.growth"),
    "capacity": Benchmark("capacity.capacity", Needs.CONTAINERS, stores=True),
    "gate": _accuracy("gate", Needs.NOISE),
    "matrix": Benchmark("accuracy.matrix", Needs.CONTAINERS, stores=True),
    "ports": _accuracy("ports", Needs.FABRIC),
    "shared-nics": _accuracy("shared-nics", Needs.FABRIC),
    "noise": _accuracy("noise", Needs.NOISE),
    "buckets": _accuracy("buckets", Needs.NOISE),
    "calibration": Benchmark("accuracy.calibration"),
    "datapaths": Benchmark("data_plane.datapaths", stores=True),
    "shapers": Benchmark("data_plane.shapers", Needs.NOISE),
    "agents": Benchmark("costs.agents"),
    "routing": Benchmark("computation.routing", Needs.NOTHING),
    "schedules": Benchmark("computation.schedules", Needs.NOTHING),
    "blackout": Benchmark("blackout.blackout"),
    "sharing": Benchmark("sharing.sharing"),
    "live": Benchmark("costs.live", Needs.REAL_CLOCK),
    "mininet": Benchmark("mininet.mininet"),
    "terms": Benchmark("computation.terms", Needs.NOTHING),
    "published": Benchmark("published.published", Needs.NOTHING),
    "calculon": Benchmark("iterations.calculon", Needs.NOTHING),
    "throughput": Benchmark("iterations.throughput", Needs.NOTHING),
    "htsim": Benchmark("htsim.htsim", stores=True),
    "traces": Benchmark("traces.traces", Needs.NOTHING),
    "training": Benchmark("computation.training", Needs.NOTHING),
    "soak": Benchmark("soak.soak", Needs.REAL_CLOCK | Needs.CONTAINERS, {"minutes": 20, "seed": 1}),
    "spine-selection": _accuracy("spine-selection"),
    "contention": _accuracy("contention", Needs.FABRIC),
    "experiments": _accuracy("experiments"),
    **{name: _accuracy(name) for name in SCENARIOS},
}
