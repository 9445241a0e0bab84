"""The reference of scenario keys in docs/reference/scenarios.md, generated from the schema.

`python -m scenarios.format.reference` prints it.
"""

from typing import Any

from pydantic import BaseModel, PlainSerializer
from pydantic.fields import FieldInfo

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
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for key, field in section.model_fields.items():
        default = "required" if field.is_required() else _shown(_as_written(field))
        lines.append(
            f"| `{field.alias or key}` | {default} | {field.description or 'its keys are below'} |"
        )
    return "\n".join(lines)


def _as_written(field: FieldInfo) -> object:
    """The default as a scenario has it: of sizes and rates, with its unit."""
    default: Any = field.default
    written = (one.func for one in field.metadata if isinstance(one, PlainSerializer))
    write: Any = next(written, None)
    return default if write is None or default is None else write(default)


def _shown(default: object) -> str:
    if isinstance(default, tuple):
        return ", ".join(f"`{entry}`" for entry in default)
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`" if isinstance(default, str | int | float) and default != "" else ""


if __name__ == "__main__":
    for printed in SECTIONS:
        print(f"## {printed.__name__}\n\n{reference(printed)}\n")
