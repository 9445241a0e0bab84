"""The benchmarks behind the figures of docs/reference/measurements.md: each yields rows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntFlag
from functools import reduce
from operator import or_
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from linux.files.program_files import ROOT, rows_of

# The function of scenarios of the library, and the options of other functions.
OF_SCENARIOS = "accuracy.accuracy"
OPTIONS: Mapping[str, Mapping[str, Any]] = {"soak": {"minutes": 20, "seed": 1}}


class Needs(IntFlag):
    """What a benchmark needs of its machine; a row may name several."""

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
    needs: Needs
    options: Mapping[str, Any]
    stores: bool

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


def code_of(name: str) -> tuple[str, ...]:
    """The benchmark's module, and its scenario if it has one: below the repository's root."""
    scenario = Path(f"scenarios/library/{name}.yaml")
    module = f"studies/benchmarks/{BENCHMARKS[name].module}.py"
    return (module, str(scenario)) if (ROOT / scenario).exists() else (module,)


def _benchmark(row: Mapping[str, str]) -> Benchmark:
    """Return the benchmark of a row; those of scenarios share a function, which gets the name."""
    name, function, needs = row["name"], row["function"], row["needs"]
    options = OPTIONS.get(name, {"name": name} if function == OF_SCENARIOS else {})
    needed = reduce(or_, (Needs[need] for need in needs.split()))
    return Benchmark(function, needed, options, bool(row["stores"]))


ROWS = rows_of(Path(__file__).with_name("benchmarks.csv"))
BENCHMARKS = {row["name"]: _benchmark(row) for row in ROWS}
