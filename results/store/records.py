"""Records of results, the JSON objects that they are, files of the store, reports of bugs."""

import csv
import json
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from math import isfinite
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from pydantic_core import from_json

from linux.files.user_files import Unreadable, give, make_folder, read_text, write_text
from model.errors import InputError, Problem, RailbedError

# The result of a run has about 50 kB. JSON takes up to 20 times its size in memory.
MOST_BYTES = 2**24
# Exceptions from a record without the form that its reader expects; of a generator in which nothing
# is next, Python makes a RuntimeError.
UNEXPECTED = (
    *(LookupError, TypeError, ValueError, ArithmeticError, AttributeError),
    *(RuntimeError, StopIteration, csv.Error),
)
# Metadata of a record's field: not in the JSON object; only if it is not empty; its own fields.
HIDDEN, OPTIONAL, FLAT = ({"json": how} for how in ("hidden", "optional", "flat"))


def plain(record: object) -> dict[str, Any]:
    """Return the JSON object of a record; infinity and NaN, which JSON lacks, become null."""
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
        case float() | Decimal():
            return float(value) if isfinite(value) else None
        case Path():
            return str(value)
        case Mapping():
            return {str(key): _value(one) for key, one in value.items()}
        case list() | tuple():
            return [_value(one) for one in value]
        case _:
            return plain(value) if is_dataclass(value) else value


def write_json(place: Path, content: Any) -> None:
    """Write a JSON file, and its folder if it is missing."""
    make_folder(place.parent)
    write_record(place, json.dumps(content, indent=1, default=str) + "\n")


def write_record(place: Path, text: str) -> None:
    """Write a text file atomically; it belongs to the user."""
    write_text(place, text)
    give(place)


def read_json(place: Path) -> dict[str, Any]:
    """Return the object in a JSON file; raise `InputError` for any other content."""
    with reading(place):
        content = from_json(read_record(place))
        if not isinstance(content, dict):
            raise TypeError(f"must be an object, got {type(content).__name__}")
    return content


def read_record(place: Path) -> str:
    """Return the text of a record; raise `InputError` if it cannot be read."""
    try:
        return read_text(place, MOST_BYTES)
    except Unreadable as error:
        forbidden = isinstance(error.__cause__, PermissionError)
        hint = "its owner may read it" if forbidden else HINT
        raise InputError(Problem(str(place), str(error), hint)) from None


HINT = "damaged, or of another version of Railbed"


@contextmanager
def reading(place: Path) -> Iterator[None]:
    """Turn exceptions from an unexpected record into an `InputError` that names its place."""
    try:
        yield
    except UNEXPECTED as error:
        what = f"cannot be parsed: {type(error).__name__}: {error}".replace("\n", " ")
        raise InputError(Problem(str(place), what, HINT)) from error


REPORT = "crash.txt"


class Bug(RailbedError):
    """An error that Railbed did not expect, and the file with its report if there is one."""

    def __init__(self, error: Exception, report: Path | None) -> None:
        where = "no report could be written" if report is None else f"please report {report}"
        super().__init__(f"a bug in Railbed: {type(error).__name__}: {error}; {where}")


def report_bug(error: Exception, folder: Path | None = None) -> Bug:
    """Write a report of an error to the folder of its run, or else to a fresh one."""
    text = "".join(traceback.format_exception(error))
    if folder is not None:
        with suppress(OSError, ValueError):
            write_record(folder / REPORT, text)
            return Bug(error, folder / REPORT)
    with suppress(OSError, ValueError):
        apart = Path(mkdtemp(prefix="railbed-crash-"))  # nobody else can enter it
        try:
            give(apart)
            write_record(apart / REPORT, text)
            return Bug(error, apart / REPORT)
        finally:
            with suppress(OSError):  # it stays if something was written to it
                apart.rmdir()
    return Bug(error, None)
