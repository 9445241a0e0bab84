"""The JSON objects of commands have the keys that docs/reference/commands.md describes."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from commands.app import app
from execution.program import ProgramResult
from linux.files.program_files import ROOT
from results.verdicts.fault_impact import FaultResult
from results.verdicts.path_check import VerifyResult
from results.verdicts.run import RunResult
from results.verdicts.several_runs import StoredRun, SweepResult, comparison_object

SECTIONS = dict(
    re.findall(
        r"^### (\w+)\n(.*?)(?=^### |\Z)",
        (ROOT / "docs" / "reference" / "commands.md").read_text().partition("## JSON objects")[2],
        re.MULTILINE | re.DOTALL,
    )
)
RECORDS: dict[str, type] = {
    "Run": RunResult,
    "Failures": FaultResult,
    "Exec": ProgramResult,
    "Verify": VerifyResult,
    "Sweep": SweepResult,
}
COMMANDS = {
    "Cost": "cost --gpus 64 --radix 64 --domain-size 8",
    "Predict": "predict quickstart",
    "Plan": "plan quickstart",
    "Train": "train gpt-1t",
    "Traffic": "traffic gpt-1t",
    "Decide": "decide {cluster}",
    "Paper": "paper",
}
RESULT = json.loads((ROOT / "tests" / "samples" / "result.json").read_text())


def shown(section: str) -> Any:
    (text,) = re.findall(r"^```\n(\{.*?)^```", SECTIONS[section], re.MULTILINE | re.DOTALL)[:1]
    return json.loads(text)


def form(kind: Any) -> Any:
    """The keys of a record's object, and of the records in it; those of mappings are not known."""
    if is_dataclass(kind):
        return dict(entries(kind))
    inside, origin = get_args(kind), get_origin(kind)
    if origin in (tuple, list, Sequence):
        return [form(inside[0])]
    return None if origin is Mapping else next(filter(None, map(form, inside)), None)


def entries(record: Any) -> Iterator[tuple[str, Any]]:
    kinds = get_type_hints(record)
    for field in fields(record):
        how, inner = field.metadata.get("json"), form(kinds[field.name])
        if how == "flat":
            yield from inner.items()
        elif how != "hidden":
            yield field.name, inner


def differences(one: Any, other: Any, place: str = "") -> Iterator[str]:
    """Yield keys that only one of two objects has; empty ones are described elsewhere.

    Names of links and claims, which have hyphens, are no keys.
    """
    if isinstance(one, dict) and isinstance(other, dict) and one and other:
        if not all("-" in key for key in one):
            found = (key for key in sorted(one.keys() ^ other.keys()) if "-" not in key)
            yield from (f"{place}.{key}" for key in found)
        for key in one.keys() & other.keys():
            yield from differences(one[key], other[key], f"{place}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and one and other:
        yield from differences(one[0], other[0], place)


def undescribed(section: str, has: Any) -> list[str]:
    """Keys that a section shows wrongly, or neither shows nor names in its text."""
    named = set(re.findall(r"`(\w+)`", SECTIONS[section]))
    found = differences(shown(section), has)
    return [key for key in found if key.rpartition(".")[2] not in named]


@pytest.mark.parametrize("section", RECORDS)
def test_all_keys_of_a_record_are_described(section: str) -> None:
    assert not undescribed(section, form(RECORDS[section]))


@pytest.mark.parametrize("section", COMMANDS)
def test_all_keys_that_a_command_prints_are_described(
    section: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(
        "{gpus: 64, platform: dgx-h100, radix: 64, models: [{configuration: gpt-146b}]}"
    )
    arguments = COMMANDS[section].format(cluster=cluster).split()
    app([*arguments, "--json"], standalone_mode=False)
    printed = json.loads(capsys.readouterr().out)
    assert not undescribed(section, printed)


def test_all_keys_of_a_comparison_are_described() -> None:
    run = StoredRun(RESULT, {}, {})
    assert not undescribed("Compare", comparison_object(run, run))
