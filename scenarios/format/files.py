"""Files that a scenario names, by paths from its own folder: the context in which it is checked."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
    ValidationInfo,
)

from linux.files.user_files import Unreadable, read_text
from scenarios.format.issues import Refused, did_you_mean
from scenarios.format.units import MOST_PAIR_BYTES, Text
from traffic_gen.traces.formats.byte_matrix import numbers_in
from traffic_gen.traces.formats.nodes import Malformed
from traffic_gen.workloads.algorithms.all_to_all import Preset

# Of the names of training configurations' files, and of models' own.
ENDINGS, MODEL_ENDING = (".yaml", ".yml"), ".json"
MOST_PATH = 4096
MOST_MATRIX_BYTES = 2**20
# Most rows of a matrix of bytes, whose numbers are values of a file: it has at most 10 000.
MOST_ROWS = 96
PRESETS = [str(preset) for preset in Preset]


def in_folder(path: str, info: ValidationInfo) -> str:
    """Return the whole path of a file; without a context, the path is from the current folder."""
    try:
        path.encode()
    except UnicodeEncodeError:
        what = "must not have a character that Unicode reserves (a lone surrogate)"
        raise ValueError(what) from None
    return str((info.context or Path()) / path)


def configuration_name(path: Path) -> str:
    """The name of a shipped training configuration, or that of a file without its ending."""
    return path.stem if path.suffix in (*ENDINGS, MODEL_ENDING) else path.name


def _configuration(name: str, info: ValidationInfo) -> str:
    """Return the whole path of a training configuration, or its name if it is a shipped one."""
    is_file = Path(name).suffix in (*ENDINGS, MODEL_ENDING)
    return in_folder(name, info) if is_file else name


def _matrix(value: object, info: ValidationInfo) -> object:
    """Return the rows of a matrix that is in a file or text, and a preset or rows as they are."""
    if not isinstance(value, str) or value in PRESETS:
        return value
    if "\n" in value:
        return _rows(value)
    path = Path(in_folder(value, info))
    try:
        return _rows(read_text(path, MOST_MATRIX_BYTES))
    except ValueError as error:
        raise ValueError(f"{value}: {error}") from error
    except Unreadable as error:
        hint = f"{did_you_mean(value, PRESETS)} presets: {', '.join(PRESETS)}".lstrip("; ")
        raise Refused(f"{value}: {error}", hint) from error


def _rows(text: str) -> list[list[int | float]]:
    try:
        return [row for _, row in numbers_in(text)]
    except Malformed as error:
        raise ValueError(f"line {error.place.removeprefix(':')}: {error.what}") from None


def matrix_text(rows: Sequence[Sequence[int | float]]) -> str:
    """Return the text of a byte matrix, which is one value of a scenario file."""
    return "".join(" ".join(map(str, row)) + "\n" for row in rows)


def _square(rows: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
    if not 2 <= len(rows) <= MOST_ROWS:
        raise ValueError(f"must have 2 to {MOST_ROWS} rows, got {len(rows)}")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows):
            what = f"must have {len(rows)} numbers, one for each row, got {len(row)}"
            raise ValueError(f"row {number} {what}")
    if not any(map(any, rows)):
        raise ValueError("no GPU sends to another GPU")
    return rows


PathText = Annotated[Text, Field(min_length=1, max_length=MOST_PATH)]
File = Annotated[PathText, AfterValidator(in_folder)]
ConfigurationFile = Annotated[PathText, AfterValidator(_configuration)]
PairBytes = Annotated[
    float,
    Field(ge=0, le=MOST_PAIR_BYTES, strict=True, allow_inf_nan=False),
    # A whole number has no point.
    PlainSerializer(lambda number: int(number) if number.is_integer() else number),
]
MatrixRows = Annotated[tuple[tuple[PairBytes, ...], ...], AfterValidator(_square)]
# The tags, which are no keys, do not appear in messages.
PairSizes = Annotated[
    Annotated[Preset, Tag("a preset")] | Annotated[MatrixRows, Tag("rows of bytes")],
    Discriminator(lambda value: "a preset" if isinstance(value, str) else "rows of bytes"),
    BeforeValidator(_matrix),
]
