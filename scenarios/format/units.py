"""Types of values in a scenario file: quantities with a unit, names, scales.

Published sizes are bytes of real training jobs. Formulas: section III of the rail-only paper (arXiv
2307.12169) with the volumes of MegatronLM (arXiv 2104.04473) and, for mixtures of experts, of
DeepSpeed-MoE (arXiv 2201.05596).
"""

import math
import re
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from model.fabric.shaping import MOST_DELAY_S, MOST_LOSS
from model.fabric.spec import PLATFORMS, FabricKind
from scenarios.format.issues import did_you_mean, written

# Units of quantities: `400 Gbit/s`, `12 MB`.
SIZES = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
RATES = {"bit/s": 1, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9, "Tbit/s": 1e12}
# Bounds of meaningful values. Beyond them, arithmetic overflows, or a run never ends.
RATE_BOUNDS = ("1 kbit/s", "1000 Tbit/s")
SIZE_BOUNDS = ("1 B", "1000000 GB")
LEAST_SCALE, MOST_SCALE = 1e-6, 1e12
MOST_S = 86_400.0
MOST_SEED = 2**32 - 1
# Most GPUs of a fabric.
MOST_DEGREE = 4096
MOST_BATCH, MOST_GPUS, MOST_TOKENS = 10**6, 2**20, 10**6
# Above the numbers of nodes, NPUs and links of any fabric that can be emulated.
MOST_IN_NETWORK = 1_000_000
# Of a custom fabric.
MOST_LINKS = 16384
# Most bytes from a GPU to another one: 1 PB.
MOST_PAIR_BYTES = 10**15
# Longest quantity and name, in characters.
MOST_CHARACTERS, MOST_NAME = 50, 100

# A unit begins with no digit: a text that does not match is refused in linear time.
_QUANTITY = re.compile(r"\s*(-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([^\s0-9]\S*)\s*")

# Sizes of real jobs that scenarios may name; in bytes, as nccl-tests count the size of the
# collective. Formulas: section III of the rail-only paper (arXiv 2307.12169).
GRADIENT_BYTES = ACTIVATION_BYTES = 2
PUBLISHED_SIZES = {
    # The buffer that a GPU's data-parallel AllReduce sums in an iteration: the gradients of all
    # parameters, over tensor and pipeline parallel degree (table 1 of arXiv 2104.04473).
    "gpt-146b-gradients": GRADIENT_BYTES * 145.6e9 / (8 * 8),
    "gpt-1t-gradients": GRADIENT_BYTES * 1008.0e9 / (8 * 64),
    # What a GPU holds for one all-to-all of one MoE layer: the activations of its tokens, each for
    # one expert. 1.3B+MoE-128 of arXiv 2201.05596, on 16 DGX A100 (arXiv 2307.12169, section
    # III-C): 512 sequences of 2048 tokens on 128 GPUs, hidden size 2048.
    "deepspeed-moe-1.3b-all-to-all": ACTIVATION_BYTES * 2048 * (512 * 2048 / 128),
}


def listed(choices: type[StrEnum]) -> str:
    """The values of an enumeration, as descriptions list them."""
    return ", ".join(f"`{choice}`" for choice in choices)


def _as_tuple(value: object) -> object:
    """A single string stands for a list of one."""
    return (value,) if isinstance(value, str) else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def parse_quantity(text: str, units: dict[str, float]) -> float:
    """Parse a number with one of `units`; raise `ValueError` with a message."""
    matched = _QUANTITY.fullmatch(text)
    if matched is None:
        raise ValueError(f"must be a number with a unit ({', '.join(units)}), got {text!r}")
    number, unit = matched.groups()
    if unit not in units:
        raise ValueError(f"unknown unit {unit!r} in {text!r}; known: {', '.join(units)}")
    return float(number) * units[unit]


def bounded_quantity(value: object, units: dict[str, float], least: str, most: str) -> float:
    """Parse a number with one of `units`, within bounds; raise `ValueError` with a message."""
    text = str(value)
    is_scalar = isinstance(value, str | int | float) and not isinstance(value, bool)
    if not is_scalar or len(text) > MOST_CHARACTERS:
        raise ValueError(f"must be a number with a unit ({', '.join(units)}), got {written(value)}")
    if _is_number(text):
        raise ValueError(f"needs a unit ({', '.join(units)}), got {text!r}")
    number = parse_quantity(text, units)
    if not parse_quantity(least, units) <= number <= parse_quantity(most, units):
        raise ValueError(f"must be {least} to {most}, got {text!r}")
    return number


def parse_rate(value: object) -> float:
    """Parse a rate within bounds, in bit/s; raise `ValueError` with a message."""
    return bounded_quantity(value, RATES, *RATE_BOUNDS)


def rate_text(rate_bps: float) -> str:
    """Return a rate as scenarios write it."""
    return f"{rate_bps / 1e9:.12g} Gbit/s"


def _bytes_text(size_bytes: int) -> str:
    return f"{size_bytes} B"


def known_platform(name: str) -> str:
    """Return the name of a platform; raise `ValueError` with a message if it is unknown."""
    if name not in PLATFORMS:
        known = ", ".join(PLATFORMS)
        raise ValueError(f"unknown platform {name!r}{did_you_mean(name, PLATFORMS)} known: {known}")
    return name


def size_in_bytes(size: str) -> float:
    """Bytes of a published size or a number with a unit; raise `ValueError` with a message."""
    if size in PUBLISHED_SIZES:
        return PUBLISHED_SIZES[size]
    return bounded_quantity(size, SIZES, *SIZE_BOUNDS)


def _size(size: object) -> object:
    """Check a size, but return it as written; pydantic itself refuses values of other types."""
    if isinstance(size, bool) or not isinstance(size, str | int | float):
        return size
    try:
        size_in_bytes(str(size))
    except ValueError as error:
        raise ValueError(f"{error}; or a published size: {', '.join(PUBLISHED_SIZES)}") from None
    return size


def _word_or_list(value: object) -> object:
    if not isinstance(value, str | list | tuple):
        raise ValueError(f"must be a word or a list of GPUs, got {written(value)}")
    return value


def _span(value: object) -> tuple[int, int]:
    """Return the first and the last of consecutive numbers: `2`, or `0-3`."""
    is_text = isinstance(value, str | int) and not isinstance(value, bool)
    span = _SPAN.fullmatch(str(value)) if is_text else None
    if span is None:
        raise ValueError(
            f"must be a number from 0, or two with a hyphen (0-3), got {written(value)}"
        )
    first, last = int(span[1]), int(span[2] or span[1])
    if last < first:
        raise ValueError(f"must begin with the smaller number, got {value!r}")
    return first, last


_SPAN = re.compile(r"(0|[1-9][0-9]{0,4})(?:-(0|[1-9][0-9]{0,4}))?", re.ASCII)
# Bytes (`!!binary`) are no text.
Text = Annotated[str, Field(strict=True)]
Name = Annotated[Text, Field(max_length=MOST_NAME)]
ShortName = Annotated[Text, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
Missing = Annotated[tuple[Name, ...], BeforeValidator(_as_tuple)]
Names = Annotated[tuple[Name, ...], BeforeValidator(_as_tuple), Field(min_length=1)]
Kinds = Annotated[tuple[FabricKind, ...], BeforeValidator(_as_tuple), Field(min_length=1)]
Rate = Annotated[float, BeforeValidator(parse_rate), PlainSerializer(rate_text, when_used="json")]
Bytes = Annotated[
    int,
    BeforeValidator(lambda value: round(bounded_quantity(value, SIZES, *SIZE_BOUNDS))),
    PlainSerializer(_bytes_text, when_used="json"),
]
Platform = Annotated[Text, AfterValidator(known_platform)]
Size = Annotated[Text, BeforeValidator(_size), PlainSerializer(size_in_bytes, when_used="json")]
Delay = Annotated[float, Field(ge=0, le=MOST_DELAY_S, strict=True)]
Loss = Annotated[float, Field(ge=0, le=MOST_LOSS, strict=True)]
Count = Annotated[int, Field(ge=1, strict=True)]
Whole = Annotated[int, Field(ge=0, strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Scale = Annotated[float, Field(ge=LEAST_SCALE, le=MOST_SCALE, strict=True)]
Seconds = Annotated[float, Field(ge=0, le=MOST_S, strict=True)]
Degree = Annotated[int, Field(ge=1, le=MOST_DEGREE, strict=True)]
Batch = Annotated[int, Field(ge=1, le=MOST_BATCH, strict=True)]
Gpus = Annotated[int, Field(ge=1, le=MOST_GPUS, strict=True)]
Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS, strict=True)]
Seed = Annotated[int, Field(ge=0, le=MOST_SEED, strict=True)]
Span = Annotated[tuple[int, int], BeforeValidator(_span)]
Ranks = Annotated[Name | tuple[Name | tuple[Name, ...], ...], BeforeValidator(_word_or_list)]


def round_up(number: float) -> float:
    """Round up to two significant digits."""
    step = 10.0 ** (math.floor(math.log10(number)) - 1)
    return round(math.ceil(number / step - 1e-9) * step, 9)


def round_down(number: float) -> float:
    """Round down to two significant digits."""
    step = 10.0 ** (math.floor(math.log10(number)) - 1)
    return round(math.floor(number / step + 1e-9) * step, 9)
