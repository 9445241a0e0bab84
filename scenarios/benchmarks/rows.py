"""What all benchmarks have in common: a row of figures, and the fabric of sixteen GPUs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from model.errors import EmulationError
from model.fabric import FabricKind, FabricSpec
from model.platforms import GBIT

Row = dict[str, Any]
# A row has it if its part of a benchmark ended early, with the cause.
FAILED = "failed"
SIXTEEN = FabricSpec(
    kind=FabricKind.RAIL_ONLY,
    domains=4,
    domain_size=4,
    platform="dgx-h100",
    hb_rate_bps=3600 * GBIT,
    nic_rate_bps=400 * GBIT,
    bandwidth_scale=20_000,
    spines=4,
)


def sized(domains: int, domain_size: int) -> FabricSpec:
    """The same in another size, with the same sum of all links."""
    scale = SIXTEEN.bandwidth_scale * domains * domain_size / SIXTEEN.gpus
    return replace(
        SIXTEEN,
        domains=domains,
        domain_size=domain_size,
        spines=domains,
        bandwidth_scale=scale,
    )


@dataclass
class Part:
    """A part of a benchmark: what holds for all its rows, and the rows."""

    facts: Row
    rows: list[Row] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """One row more."""
        self.rows.append({**self.facts, **row})


@contextmanager
def part(**facts: Any) -> Iterator[Part]:
    """A part whose early end costs no other part its rows: it becomes a row itself."""
    found = Part(facts)
    try:
        yield found
    except EmulationError as error:
        found.add({FAILED: str(error).partition("\n")[0]})
