"""Records of results, and the JSON objects that they are."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from math import isfinite
from pathlib import Path
from typing import Any

# Metadata of a record's field: not in the JSON object; only if it is not empty; its own fields.
HIDDEN, OPTIONAL, FLAT = ({"json": how} for how in ("hidden", "optional", "flat"))


def plain(record: object) -> dict[str, Any]:
    """Return the JSON object of a record.

    Infinity and NaN, which JSON does not have, become null.
    """
    return dict(_entries(record))


def _entries(record: Any) -> Iterator[tuple[str, Any]]:
    for field in fields(record):
        value, how = getattr(record, field.name), field.metadata.get("json")
        if how == "flat":
            yield from () if value is None else _entries(value)
        elif how != "hidden" and not (how == "optional" and not value):
            yield field.name, _value(value)


def _value(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case float():
            return value if isfinite(value) else None
        case Path():
            return str(value)
        case Mapping():
            return {key: _value(one) for key, one in value.items()}
        case list() | tuple():
            return [_value(one) for one in value]
    return plain(value) if is_dataclass(value) else value
