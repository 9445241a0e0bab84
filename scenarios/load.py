"""Load a scenario file: its text, its checked keys, the resolved scenario.

All problems of a kind are reported at once, each with its file, line and key. The text of a
scenario stands alone: it has the overrides, and what other files say.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.scalarstring import LiteralScalarString

from model.errors import InputError
from model.prediction.machine import Machine
from scenarios.format.checked_file import checked
from scenarios.format.document import (
    Document,
    out_of_bounds,
    override,
    parse,
    read,
)
from scenarios.format.files import matrix_text
from scenarios.format.keys import SCENARIO, ScenarioFile
from scenarios.format.networks.files import KIND
from scenarios.format.workloads.kinds import KINDS
from scenarios.resolve import resolve
from scenarios.scenario import Scenario

# Longer than any line, so that the YAML writer folds none.
WHOLE_LINES = 2**20
# The kind of workload of each key that may name a file.
KIND_OF = {key: kind for kind in KINDS for key in kind.file_keys}


def load(
    path: Path,
    overrides: Sequence[str] = (),
    machine: Machine | None = None,
    on_paper: bool = False,
) -> Scenario:
    """Read and check a scenario; raises `InputError` with all problems of a kind.

    `machine` has this machine's measured costs; without them, no load is refused as too high, but
    steps are as too short. A scenario `on_paper` may have more GPUs than any fabric.
    """
    return _loaded(read(path, SCENARIO), overrides, machine, on_paper)


def load_of_run(run: Path) -> Scenario:
    """Return the scenario of a stored run, be this machine able to execute it or not."""
    return load(run / "scenario.yaml", ["allow_overload=true"])


def load_trace(path: Path, fabric: Mapping[str, Any], overrides: Sequence[str]) -> Scenario:
    """Return the scenario on paper that replays a trace on a fabric with these keys.

    Raises `InputError` with all problems.
    """
    text = json.dumps({"fabric": fabric, "workloads": [{"trace": str(path.absolute())}]})
    return _loaded(parse(path, text, SCENARIO), overrides, None, on_paper=True)


def _loaded(
    document: Document, overrides: Sequence[str], machine: Machine | None, on_paper: bool
) -> Scenario:
    document = _changed(document, overrides)
    file = checked(document, ScenarioFile)
    # Runs and containers are named after it.
    by_path = re.sub(r"[^a-z0-9]+", "-", document.path.stem.lower())[:40].strip("-")
    name = file.name or by_path or "scenario"
    text = _standalone_text(document, file, name)
    # Of a scenario on paper, no run folder has the text.
    if not on_paper:
        document.refuse(out_of_bounds(text, document.values))
    scenario = resolve(document, file, name, text, machine, on_paper)
    if document.problems:
        raise InputError(*document.problems)
    return scenario


def _changed(document: Document, overrides: Sequence[str]) -> Document:
    """Set values of a document; add the network that its fabric names, if it is of keys, too."""
    document = override(document, overrides)
    with suppress(InputError, KeyError, TypeError, ValueError):
        path = document.path.parent.absolute() / document.values["fabric"]["topology"]
        return replace(document, network=read(path, KIND))
    return document


def format_check(path: Path) -> Callable[[Sequence[str]], str]:
    """Return a check of overrides that raises `InputError` for wrong keys, types or values.

    It returns a text that equal values have in common, in a tenth of the time of `load`: the file
    is read once.
    """
    document = read(path, SCENARIO)

    def check(overrides: Sequence[str]) -> str:
        changed = _changed(deepcopy(document), overrides)
        file = checked(changed, ScenarioFile)
        if changed.problems:
            raise InputError(*changed.problems)
        return repr(file.model_dump(mode="json"))

    return check


def _standalone_text(document: Document, file: ScenarioFile, name: str) -> str:
    """Return the text of a checked document that stands alone, with its comments.

    It has the overrides and the name, what the files of networks and matrices say, and whole paths
    of traces and configurations. A document without any of these keeps its text.
    """
    values, fabric = document.values, document.values["fabric"]
    checked = file.model_dump(mode="json", by_alias=True, exclude_unset=True)
    is_changed = bool(document.overridden)
    if fabric.get("topology") is not None:
        # The keys of the network are put in place of its name.
        is_changed = True
        del fabric["topology"]
        checked["fabric"].pop("topology", None)
        for key, value in checked["fabric"].items():
            fabric.setdefault(key, value)
    for entry, whole in zip(_entries(values), _entries(checked), strict=True):
        for key in KIND_OF:
            if isinstance(entry.get(key), str):
                value = whole[key]
                # A matrix is a text of one value.
                if isinstance(value, list):
                    value = LiteralScalarString(matrix_text(value))
                if entry[key] != value:
                    entry[key], is_changed = value, True
    return _written(values, name) if is_changed else document.text


def _entries(values: Any) -> Iterator[Any]:
    """Yield the mapping of each workload, and of each of its jobs."""
    for workload in values["workloads"]:
        yield workload
        yield from workload.get("jobs", ())


def _written(values: CommentedMap, name: str) -> str:
    if values.get("name") is None:
        values["name"] = name
    yaml = YAML(typ="rt")
    yaml.width = WHOLE_LINES
    text = StringIO()
    yaml.dump(values, text)
    return text.getvalue()


def with_files_in(folder: Path, scenario: Scenario) -> tuple[str, dict[Path, Path]]:
    """Return a scenario's text with its traces and configurations in a folder of another machine.

    The text has the scenario's name, as its file may have another one there. Also return the files
    of this machine by their paths there. Files of equal names get different paths.
    """
    values = parse(Path(scenario.name), scenario.text, SCENARIO).values
    files = dict[Path, Path]()
    named = ((entry, key) for entry in _entries(values) for key in KIND_OF if key in entry)
    whole = [(entry, key) for entry, key in named if str(entry[key]).startswith("/")]
    for number, (entry, key) in enumerate(whole):
        path, there = Path(entry[key]), folder / str(number)
        for file in KIND_OF[key].files(path):
            files[there / file.relative_to(path.parent)] = file
        entry[key] = str(there / path.name)
    return _written(values, scenario.name), files
