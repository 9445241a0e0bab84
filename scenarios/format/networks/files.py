"""Networks in files: Railbed's own, with the links of a custom fabric, and those of other tools.

ASTRA-sim's network file of its analytical backend (`network.yml`):

    topology: [ Switch, Switch ]
    npus_count: [ 8, 4 ]
    bandwidth: [ 450, 50 ]     # 2^30 bytes a second of a link
    latency: [ 500, 1000 ]     # ns of a link

The first dimension is the HB domain, the second one joins the NPUs that have the same place in
their domains: it is the rails. A network of one dimension is one HB domain. Latencies are left out:
latencies of an emulated path are longer.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice, product
from math import prod
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from linux.files.user_files import Unreadable, read_text
from model.errors import InputError
from scenarios.format.checked_file import Strict, checked
from scenarios.format.document import Document, FileKind, parse
from scenarios.format.issues import Issue
from scenarios.format.networks.ns3 import LEFT_OUT, is_ns3, is_simai, read_ns3, read_simai
from scenarios.format.other_files import other_kind
from scenarios.format.units import (
    MOST_IN_NETWORK,
    MOST_LINKS,
    Count,
    Delay,
    Loss,
    Platform,
    Rate,
    Text,
    rate_text,
)
from traffic_gen.traces.formats.nodes import Malformed

PAGE = "docs/reference/scenarios.md"
KIND = FileKind("network", f"{PAGE} has an example", PAGE)
FORMATS = {"ASTRA-sim's ns-3 backend": (is_ns3, read_ns3), "SimAI": (is_simai, read_simai)}
MOST_NODES = 4096
# SimAI's file of 4096 GPUs has 3 MB.
MOST_BYTES = 2**24
RANGE = re.compile(r"\[([0-9]{1,4})-([0-9]{1,4})\]")
# Its GB are 2^30 bytes (`bw_GBps_to_Bpns` of the analytical backend).
BITS_PER_GBYTE = 8 * 2**30
# Two NPUs have one link, whatever the kind, and a single one has none; of more, a kind has what no
# switch has.
PAIR = 2
UNLIKE_A_SWITCH = {
    "Ring": "its NPUs have links to two neighbours alone",
    "FullyConnected": "its NPUs have a link for each other NPU, where a switch has one for all",
}
MORE = (
    ": each further one is a network of its own, with a NIC of every NPU; here all NICs of a "
    "domain's rails have one. Write switches above switches as `links`"
)


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
    """fraction of packets that the link drops"""


def _few_links(value: object) -> object:
    """Refuse too many links before their names are made; pydantic refuses what are no entries."""
    entries = value if isinstance(value, list | tuple) else ()
    if sum(map(_count_of_links, entries)) > MOST_LINKS:
        raise ValueError(f"must be at most {MOST_LINKS}")
    return value


def _count_of_links(entry: object) -> int:
    given = entry if isinstance(entry, dict) else {}
    return prod(_count_of_names(given.get(key)) for key in ("from", "to"))


def _count_of_names(value: object) -> int:
    """Return how many names an end of links has; one if it is refused without making any."""
    words = value if isinstance(value, list | tuple) else [value]
    ranges = (RANGE.findall(word) for word in words if isinstance(word, str))
    counts = (prod(1 + int(most) - int(least) for least, most in one) for one in ranges)
    return max(1, sum(count for count in counts if 1 <= count <= MOST_NODES))


Links = Annotated[tuple[LinkEntry, ...], BeforeValidator(_few_links)]


class NetworkFile(Strict):
    """Keys of a scenario's fabric that a network has."""

    domains: Count
    domain_size: Count
    platform: Platform | None = None
    hb_rate: Rate | None = None
    nic_rate: Rate | None = None
    nic_ports: Count = 1
    nics_per_domain: Count | None = None
    links: Links = Field(min_length=1)


class Dimensions(Strict):
    """Of each dimension: its kind, its NPUs, and the rate of a link."""

    topology: tuple[str, ...] = Field(min_length=1)
    npus_count: tuple[Annotated[int, Field(ge=1, le=MOST_IN_NETWORK, strict=True)], ...]
    bandwidth: tuple[Annotated[float, Field(gt=0, le=1e9, strict=True)], ...]
    latency: tuple[Annotated[float, Field(ge=0, strict=True)], ...] | None = None


def _has_a_key_of(keys: Iterable[str]) -> re.Pattern[str]:
    """A line that begins with a key, also in braces, and quoted as in JSON."""
    return re.compile(rf"""^[ \t{{"']*({"|".join(keys)})["']?[ \t]*:""", re.M)


OF_RAILBED = _has_a_key_of(NetworkFile.model_fields)
OF_ASTRA_SIM = _has_a_key_of(Dimensions.model_fields)


def read_astra_sim(document: Document) -> dict[str, object]:
    """Return the keys of a fabric; raise `InputError` for any other network."""
    network = checked(document, Dimensions)
    document.refuse(_dimension_issues(network))
    size, *domains = network.npus_count
    rates = [rate_text(rate * BITS_PER_GBYTE) for rate in network.bandwidth]
    return {
        "kinds": "rail-only",
        "domains": domains[0] if domains else 1,
        "domain_size": size,
        "hb_rate": rates[0],
        "nic_rate": rates[-1],
    }


def _dimension_issues(network: Dimensions) -> Iterator[Issue]:
    """Yield issues of dimensions that are no HB domains and rails, as no switch joins them."""
    kinds, counts, place = network.topology, network.npus_count, ("topology",)
    given = kinds, counts, network.bandwidth, network.latency
    lengths = [len(entries) for entries in given if entries is not None]
    if len(set(lengths)) > 1:
        what = "topology, npus_count, bandwidth, latency must be equally long"
        yield Issue(place, f"{what}, got {', '.join(map(str, lengths))}")
    elif len(kinds) > PAIR:
        what = "must have one dimension, an HB domain, or two, HB domains and rails, got"
        yield Issue(place, f"{what} {len(kinds)}{MORE}")
    else:
        for joined, kind, count in zip(("an HB domain", "a rail"), kinds, counts, strict=False):
            reason = UNLIKE_A_SWITCH.get(kind, f"known: Switch, {', '.join(UNLIKE_A_SWITCH)}")
            if kind != "Switch" and not (kind in UNLIKE_A_SWITCH and count <= PAIR):
                what = f"{joined} must be a switch, got {kind[:40]!r} of {count} NPUs"
                yield Issue(place, f"{what}: {reason}")


def read_network(path: Path) -> dict[str, object]:
    """Return the keys of a fabric from a file, by its content; raise `ValueError` with its line.

    Its path is among them if its links have more than rates, which is left out.
    Raises `InputError` for mistakes in a custom network, or in one of ASTRA-sim.
    """
    try:
        text = read_text(path, MOST_BYTES)
    except Unreadable as error:
        raise ValueError(f"{path}: {error}") from None
    if OF_RAILBED.search(text):
        own = checked(parse(path, text, KIND), NetworkFile)
        return own.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if OF_ASTRA_SIM.search(text):
        document = parse(path, text, KIND)
        keys, latency = read_astra_sim(document), str(document.values.get("latency"))
        return keys | ({"topology": str(path)} if re.search("[1-9]", latency) else {})
    try:
        for is_one, read in FORMATS.values():
            if is_one(text):
                return read(text) | ({"topology": str(path)} if LEFT_OUT.search(text) else {})
    except Malformed as error:
        raise ValueError(f"{path}{error.place}: {error.what}") from None
    if other := other_kind(path, text, re.findall(r'"([\w-]+)"[ \t]*:', text), KIND.name):
        raise InputError(other)
    known = f"{', '.join(FORMATS)}, ASTRA-sim, and a custom network with `links`"
    raise ValueError(f"{path}:1: unknown format of network; known: {known}")
