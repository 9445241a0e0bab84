"""Captures on the links that a run's user named, on each fabric that has them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from execution.cases.emulation import Experiment
from model.errors import InputError, Problem
from model.fabric.topology import build_topology
from scenarios.scenario import Scenario
from testbed.instruments.capture import capturing


def require_links(scenario: Scenario, names: Sequence[str]) -> None:
    """Raise `InputError` with all names that no fabric of the scenario has."""
    known = {link.name for spec in scenario.fabrics for link in build_topology(spec).links}
    kinds = "d0g0--hb0, d0g0--rail0 or rail0--spine0"
    problems = [
        Problem("--capture", f"no fabric has a link {name!r}", f"links are named like {kinds}")
        for name in names
        if name not in known
    ]
    if problems:
        raise InputError(*problems)


@contextmanager
def captured(fabric: Experiment, names: Sequence[str], folder: Path) -> Iterator[None]:
    """Capture on the links of a fabric that have these names, while the context lasts."""
    links = [fabric.topology.link_by_name[n] for n in names if n in fabric.topology.link_by_name]
    if not links:
        yield
        return
    with capturing(links, folder, fabric.bed.watch):
        yield
