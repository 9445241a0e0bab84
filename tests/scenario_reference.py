"""The reference of scenario keys in docs/reference/scenarios.md, generated from the schema.

`python -m tests.scenario_reference` prints it.
"""

import ast
from inspect import getsource
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, PlainSerializer
from pydantic.fields import FieldInfo

from scenarios.format.checked_file import Strict
from scenarios.format.keys import (
    Expect,
    Fabric,
    FaultEntry,
    Job,
    RoceKeys,
    ScenarioFile,
    SwitchQueueKeys,
)
from scenarios.format.networks.files import LinkEntry
from scenarios.format.workloads.kinds import KINDS
from scenarios.format.workloads.work import JobPlace

SECTIONS: tuple[type[BaseModel], ...] = (
    ScenarioFile,
    Fabric,
    RoceKeys,
    SwitchQueueKeys,
    LinkEntry,
    *KINDS,
    JobPlace,
    FaultEntry,
    Job,
    Expect,
)


def reference(section: type[BaseModel]) -> str:
    """A table of the section's keys: name, default, meaning."""
    lines, meanings = ["| key | default | meaning |", "|---|---|---|"], _meanings(section)
    for key, field in section.model_fields.items():
        default = "required" if field.is_required() else _default(field)
        meaning = meanings.get(key) or field.description or "its keys are below"
        lines.append(f"| `{field.alias or key}` | {default} | {meaning} |")
    return "\n".join(lines)


def _meanings(section: type[BaseModel]) -> dict[str, str]:
    """The texts below keys. Pydantic could read them, at each import of the schema."""
    meanings: dict[str, str] = {}
    for one in section.__mro__:
        if issubclass(one, Strict):
            for pair in pairwise(ast.walk(ast.parse(getsource(one)))):
                match pair:
                    case ast.AnnAssign(ast.Name(key)), ast.Expr(ast.Constant(str(text))):
                        meanings.setdefault(key, " ".join(text.split()))
                    case _:
                        pass
    return meanings


def _default(field: FieldInfo) -> str:
    """The default as a scenario has it: of sizes and rates, with its unit."""
    default: Any = field.default
    for one in field.metadata:
        if isinstance(one, PlainSerializer) and default is not None:
            write: Any = one.func
            default = write(default)
    if isinstance(default, tuple):
        return ", ".join(f"`{entry}`" for entry in default)
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`" if isinstance(default, str | int | float) and default != "" else ""


if __name__ == "__main__":
    for printed in SECTIONS:
        print(f"## {printed.__name__}\n\n{reference(printed)}\n")
