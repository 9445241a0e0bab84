"""Records as JSON objects, and the objects that the documentation shows."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from math import inf, nan
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from execution.program import LinkBytes, ProgramResult, RankEnd
from linux.files.program_files import ROOT
from results.store.records import FLAT, HIDDEN, OPTIONAL, plain
from results.verdicts.breakdown import IterationResult, JobTime, RequestResult
from results.verdicts.fault_impact import FaultResult, FaultTimes
from results.verdicts.model_comparison import CaseResult, Fabric
from results.verdicts.path_check import FabricCheck, IsolationCheck, Mismatch, VerifyResult
from results.verdicts.run import Agreement, Interference, RunResult, Slowdown
from results.verdicts.several_runs import PointResult, SweepResult
from results.verdicts.summary import Interval, Summary

REFERENCE = (ROOT / "docs" / "reference" / "commands.md").read_text()


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    first: float
    second: tuple[float, ...] = (nan, 1.0)


@dataclass(frozen=True)
class Outer:
    colour: Colour
    place: Path
    inner: Inner
    flat: Inner | None = field(default=None, metadata=FLAT)
    digest: str = field(default="of work", metadata=HIDDEN)
    jobs: tuple[Inner, ...] = field(default=(), metadata=OPTIONAL)
    more: dict[str, Any] = field(default_factory=dict)


def test_a_record_is_its_object() -> None:
    record = Outer(Colour.RED, Path("/a"), Inner(inf), more={"kept": [Colour.RED, None, {}]})
    assert plain(record) == {
        "colour": "red",
        "place": "/a",
        "inner": {"first": None, "second": [None, 1.0]},
        "more": {"kept": ["red", None, {}]},
    }


def test_the_fields_of_a_flat_record_stand_in_its_place() -> None:
    record = Outer(Colour.RED, Path("/a"), Inner(1.0), flat=Inner(2.0), jobs=(Inner(3.0, ()),))
    assert list(plain(record)) == ["colour", "place", "inner", "first", "second", "jobs", "more"]
    assert plain(record)["jobs"] == [{"first": 3.0, "second": []}]


def keys_of(record: type) -> Iterator[str]:
    """The keys of a record's object, the optional ones included."""
    hints = get_type_hints(record)
    for one in fields(record):
        if one.metadata == FLAT:
            yield from keys_of((get_args(hints[one.name]) or (hints[one.name],))[0])
        elif one.metadata != HIDDEN:
            yield one.name


def documented(heading: str, place: Sequence[str | int]) -> Any:
    """The object below a heading of the reference, and what is at a place in it."""
    block = re.search(rf"^### {heading}\n.*?^```\n(.*?)^```", REFERENCE, re.DOTALL | re.MULTILINE)
    assert block is not None
    shown = json.loads(block[1])
    for part in place:
        shown = shown[part]
    return shown


CASE = ("cases", 0)


@pytest.mark.parametrize(
    ("heading", "place", "record"),
    [
        ("Run", (), RunResult),
        ("Run", CASE, CaseResult),
        ("Run", (*CASE, "fabric"), Fabric),
        ("Run", (*CASE, "measured_s"), Summary),
        ("Run", (*CASE, "measured_s", "interval"), Interval),
        ("Run", (*CASE, "iteration"), IterationResult),
        ("Run", (*CASE, "inference"), RequestResult),
        ("Run", (*CASE, "jobs", 0), JobTime),
        ("Run", ("slowdowns", 0), Slowdown),
        ("Run", ("generators", 0), Agreement),
        ("Run", ("interference", 0), Interference),
        ("Failures", (), FaultResult),
        ("Failures", ("times", 0), FaultTimes),
        ("Exec", (), ProgramResult),
        ("Exec", ("ranks", 0), RankEnd),
        ("Exec", ("links", 0), LinkBytes),
        ("Verify", (), VerifyResult),
        ("Verify", ("fabrics", 0), FabricCheck),
        ("Verify", ("fabrics", 0, "mismatches", 0), Mismatch),
        ("Verify", ("fabrics", 0, "rail_isolation"), IsolationCheck),
        ("Sweep", (), SweepResult),
        ("Sweep", ("points", 0), PointResult),
    ],
)
def test_the_reference_shows_every_key(
    heading: str, place: Sequence[str | int], record: type
) -> None:
    assert set(documented(heading, place)) == set(keys_of(record))
