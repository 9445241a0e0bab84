"""ASTRA-sim's network file of its analytical backend (`network.yml`), as keys of a fabric.

    topology: [ Switch, Switch ]
    npus_count: [ 8, 4 ]
    bandwidth: [ 450, 50 ]     # 2^30 bytes a second of a link
    latency: [ 500, 1000 ]     # ns of a link

The first dimension is the HB domain, the second one joins the NPUs that have the same place in
their domains: it is the rails. A network of one dimension is one HB domain. Latencies are left out:
latencies of an emulated path are longer.
"""

import re
from pathlib import Path
from typing import Any

from ruamel.yaml.comments import CommentedMap

from scenarios.format.document import UNREADABLE, Document, line_of, parser, plain, unreadable
from scenarios.format.issues import Unmapped
from scenarios.format.units import MOST_IN_NETWORK, rate_text

DIMENSIONS = ("topology", "npus_count", "bandwidth")
NETWORK_KEYS = (*DIMENSIONS, "latency")
# Also in braces, and quoted as in JSON.
KEY = re.compile(rf"""^[\s{{"']*({"|".join(NETWORK_KEYS)})["']?\s*:""", re.MULTILINE)
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


def is_astra_sim(text: str) -> bool:
    """Whether a text has a line that begins with a key of the network file."""
    return KEY.search(text) is not None


def read_astra_sim(text: str) -> dict[str, object]:
    """Return the keys of a fabric; raise `Unmapped` for any other network."""
    document = _document(text)
    kinds, counts, rates = (_list(document, name) for name in DIMENSIONS)
    if unknown := [key for key in document.values if key not in NETWORK_KEYS]:
        what = f"unknown key {str(unknown[0])[:40]!r}; known: {', '.join(NETWORK_KEYS)}"
        raise Unmapped(document.line((unknown[0],)), what)
    if not len(kinds) == len(counts) == len(rates):
        got = ", ".join(str(len(entries)) for entries in (kinds, counts, rates))
        what = f"{', '.join(DIMENSIONS)} must be equally long, got {got}"
        raise Unmapped(document.line(("topology",)), what)
    if len(kinds) > PAIR:
        what = "must have one dimension, an HB domain, or two, HB domains and rails, got"
        raise Unmapped(document.line(("topology",)), f"{what} {len(kinds)}{MORE}")
    _require_switches(document, kinds, counts)
    size, domains = _count(document, counts[0]), 1
    if len(counts) == PAIR:
        domains = _count(document, counts[1])
    return {
        "kinds": "rail-only",
        "domains": domains,
        "domain_size": size,
        "hb_rate": rate_text(_rate(document, rates[0]) * BITS_PER_GBYTE),
        "nic_rate": rate_text(_rate(document, rates[-1]) * BITS_PER_GBYTE),
    }


def _document(text: str) -> Document:
    try:
        values = parser("rt").load(text)
    except UNREADABLE as error:
        line = line_of(error, text).removeprefix(":")
        raise Unmapped(int(line or 1), unreadable(error)) from None
    if not isinstance(values, CommentedMap):
        raise Unmapped(1, "must be a mapping")
    return Document(Path(), text, values)


def _list(document: Document, name: str) -> list[Any]:
    entries = plain(document.values.get(name))
    if not isinstance(entries, list) or not entries:
        raise Unmapped(document.line((name,)), f"{name} must be a list, got {entries!r}")
    return entries


def _require_switches(document: Document, kinds: list[Any], counts: list[Any]) -> None:
    """Raise `Unmapped` for a dimension that no switch joins."""
    for place, (kind, count) in enumerate(zip(kinds, counts, strict=True)):
        reason = UNLIKE_A_SWITCH.get(str(kind), f"known: Switch, {', '.join(UNLIKE_A_SWITCH)}")
        if kind != "Switch" and not (str(kind) in UNLIKE_A_SWITCH and count in (1, PAIR)):
            joined = "an HB domain" if place == 0 else "a rail"
            got = f"{str(kind)[:40]!r} of {str(count)[:40]} NPUs"
            what = f"{joined} must be a switch, got {got}: {reason}"
            raise Unmapped(document.line(("topology",)), what)


def _count(document: Document, npus: Any) -> int:
    if not isinstance(npus, int) or isinstance(npus, bool) or npus < 1:
        raise Unmapped(document.line(("npus_count",)), f"must be whole numbers, got {npus!r}")
    if npus > MOST_IN_NETWORK:
        what = f"must be at most {MOST_IN_NETWORK}, got {npus:.3g}"
        raise Unmapped(document.line(("npus_count",)), what)
    return npus


def _rate(document: Document, rate: Any) -> float:
    if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 < rate < 1e9:
        raise Unmapped(document.line(("bandwidth",)), f"must be GB/s, got {rate!r}")
    return float(rate)
