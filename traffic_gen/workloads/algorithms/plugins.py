"""Algorithms of a user's own: from a Python file, or from installed packages.

Either has a table like `ALGORITHMS` of `traffic_gen/workloads/algorithms/collectives.py`.
"""

import importlib.util
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

# The group of entry points by which an installed package names its table.
GROUP = "railbed.algorithms"
TABLE = "ALGORITHMS"


def enter_file(path: Path) -> None:
    """Enter the algorithms of a Python file; raise `ValueError` with a sentence if it has none."""
    spec = importlib.util.spec_from_file_location(f"plugin_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ValueError("is no Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(f"its code fails: {type(error).__name__}: {error}") from error
    if not hasattr(module, TABLE):
        raise ValueError(f"has no table {TABLE}")
    _enter(getattr(module, TABLE))


def enter_installed() -> None:
    """Enter the algorithms of all installed packages; raise `ValueError` naming a bad one."""
    for entry in entry_points(group=GROUP):
        try:
            _enter(entry.load())
        except (Exception, SystemExit) as error:
            raise ValueError(f"the entry point {entry.name} ({entry.value}): {error}") from error


def _enter(table: Any) -> None:
    """Add algorithms to the known ones, unless they are wrong or a name is taken."""
    # Without a plugin, a command that needs no algorithm imports none.
    from traffic_gen.workloads.algorithms.collectives import ALGORITHMS

    if not isinstance(table, Mapping):
        raise ValueError(f"{TABLE} must be a table, got {type(table).__name__}")
    for named, algorithm in table.items():
        _require_right(named, algorithm)
        known = ALGORITHMS.get(named)
        if known is not None and known is not algorithm:
            raise ValueError(f"{named[0]} has an algorithm {named[1]!r} already")
    ALGORITHMS.update(table)


def _require_right(named: Any, algorithm: Any) -> None:
    """Raise `ValueError` unless this is a collective with a name, and an algorithm."""
    from model.workload.transfers.collective import Collective
    from traffic_gen.workloads.algorithms.collectives import Algorithm

    match named:
        case (Collective(), str() as name) if name:
            pass
        case _:
            raise ValueError(f"the key {named!r} must be a collective and a name")
    if not isinstance(algorithm, Algorithm):
        raise ValueError(f"{name!r} must be an Algorithm, got {type(algorithm).__name__}")
