"""Networks in files: Railbed's own, with the links of a custom fabric, and those of other tools."""

import re
from collections.abc import Iterator
from itertools import chain, islice, product
from math import prod
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from linux.files.user_files import Unreadable, read_text
from scenarios.format.checked_file import Strict, checked
from scenarios.format.document import FileKind, parse
from scenarios.format.issues import Unmapped
from scenarios.format.networks.astra_sim import is_astra_sim, read_astra_sim
from scenarios.format.networks.ns3 import is_ns3, is_simai, read_ns3, read_simai
from scenarios.format.units import Count, Delay, Loss, Platform, Rate, Text

KIND = FileKind(
    "network", "docs/reference/scenarios.md has an example", "docs/reference/scenarios.md"
)
FORMATS = {
    "ASTRA-sim's ns-3 backend": (is_ns3, read_ns3),
    "SimAI": (is_simai, read_simai),
}
MOST_NODES = 4096
# SimAI's file of 4096 GPUs has 3 MB.
MOST_BYTES = 2**24
RANGE = re.compile(r"\[([0-9]{1,4})-([0-9]{1,4})\]")


def _nodes(value: object) -> object:
    """Return the names of a word or a list; pydantic itself refuses values of other types."""
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        return value
    names = tuple(islice(chain.from_iterable(map(names_of, words)), MOST_NODES + 1))
    if len(names) > MOST_NODES:
        raise ValueError(f"must be at most {MOST_NODES} names")
    return names


def names_of(word: str) -> Iterator[str]:
    """Yield the names that a word stands for: `d[0-1]g0`, as Slurm writes it, d0g0 and d1g0.

    Zeros in front stay, as in `leaf[00-11]`.
    """
    first, *others = RANGE.split(word)
    bounds = list(zip(others[::3], others[1::3], strict=True))
    ranges = [range(int(least), int(most) + 1) for least, most in bounds]
    count = prod(map(len, ranges))
    if not 1 <= count <= MOST_NODES:
        raise ValueError(f"must stand for 1 to {MOST_NODES} names, got {word!r} of {count}")
    widths = [len(least) if least.startswith("0") else 0 for least, _ in bounds]
    for numbers in product(*ranges):
        padded = (f"{number:0{width}}" for number, width in zip(numbers, widths, strict=True))
        yield first + "".join(chain(*zip(padded, others[2::3], strict=True)))


Nodes = Annotated[tuple[Text, ...], BeforeValidator(_nodes), Field(min_length=1)]


class LinkEntry(Strict):
    """Links from each node of one list to each of another."""

    from_: Nodes = Field(alias="from")
    """GPUs (`d0g0`) or switches, by names of your own; `d[0-3]g0` stands for four"""
    to: Nodes
    """switches: each node of `from` has a link to each of them"""
    rate: Rate | None = None
    """default: a NIC port's, `nic_rate` over `nic_ports`"""
    delay: Delay = 0.0
    """seconds that the link delays each packet"""
    loss: Loss = 0.0
    """part of all packets that the link loses"""


class NetworkFile(Strict):
    """Keys of a scenario's fabric that a network has."""

    domains: Count
    domain_size: Count
    platform: Platform | None = None
    hb_rate: Rate | None = None
    nic_rate: Rate | None = None
    nic_ports: Count = 1
    nics_per_domain: Count | None = None
    links: tuple[LinkEntry, ...] = Field(min_length=1)


def is_own(text: str) -> bool:
    """Whether a text has a line that begins with the links of a fabric."""
    return any(line.startswith("links:") for line in text.splitlines())


def read_network(path: Path) -> dict[str, object]:
    """Return the keys of a fabric from a file, by its content; raise `ValueError` with its line.

    Raises `InputError` for mistakes in a custom network, or in one of ASTRA-sim.
    """
    try:
        text = read_text(path, MOST_BYTES)
    except Unreadable as error:
        raise ValueError(f"{path}: {error}") from None
    if is_own(text):
        own = checked(parse(path, text, KIND), NetworkFile)
        return own.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if is_astra_sim(text):
        return read_astra_sim(parse(path, text, KIND))
    try:
        for is_one, read in FORMATS.values():
            if is_one(text):
                return read(text)
    except Unmapped as error:
        raise ValueError(f"{path}:{error.line}: {error.what}") from None
    raise ValueError(
        f"{path}:1: unknown format of network; known: {', '.join(FORMATS)}, ASTRA-sim, "
        "and a custom network with `links`"
    )
