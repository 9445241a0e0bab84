"""What links did when each was measured alone: as JSON and as a table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from model.calibration import LinkCalibration

COLUMNS = ("nominal", "rate off by", "latency", "gaps off by")


def calibration_objects(
    fabrics: Mapping[str, Sequence[LinkCalibration]],
) -> list[dict[str, Any]]:
    """One object for each fabric, by its name."""
    return [
        {"fabric": fabric, "links": [_link_object(link) for link in links]}
        for fabric, links in fabrics.items()
    ]


def _link_object(link: LinkCalibration) -> dict[str, Any]:
    return {**asdict(link), "rate_error": link.rate_error, "flaws": list(link.flaws)}


def calibration_table(fabrics: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each class of links of each fabric: the worst that was found in each column."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(overflow="fold")
    for heading in COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    for fabric in fabrics:
        table.add_row(Text(fabric["fabric"], "bold"))
        for kind in dict.fromkeys(link["kind"] for link in fabric["links"]):
            table.add_row(*_row([link for link in fabric["links"] if link["kind"] == kind]))
    return table


def _row(links: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f" {links[0]['kind']}"
    yield f"{links[0]['nominal_bps'] / 1e6:.4g} Mbit/s"
    yield f"{max((link['rate_error'] for link in links), key=abs):+.2%}"
    yield f"{max(link['latency_s'] for link in links) * 1e6:.0f} µs"
    yield f"{max(link['gap_error_p95'] for link in links):.1%}"
