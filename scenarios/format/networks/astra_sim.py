"""Network files of ASTRA-sim's analytical backend (`network.yml`).

    topology: [ Switch, Switch ]
    npus_count: [ 8, 4 ]
    bandwidth: [ 450, 50 ]     # GB/s of a link
    latency: [ 500, 1000 ]     # ns of a link

The first dimension is the HB domain, the second one joins the NPUs that have the same place in
their domains: it is the rails. Latencies are left out: those of an emulated path are longer.
"""

from typing import Any

from ruamel.yaml.comments import CommentedMap

from scenarios.format.bounded_text import (
    UNREADABLE,
    line_of,
    parser,
    plain,
    unreadable,
)
from scenarios.format.networks.refusal import Keys, Unmapped, gbit

NAMES = ("topology", "npus_count", "bandwidth")
GBIT_PER_GBYTE = 8
# On two NPUs, a ring is the two directions of a switch.
PAIR = 2
# Above the number of NPUs of any fabric that can be emulated.
MOST = 1_000_000


def is_astra_sim(text: str) -> bool:
    """Whether a text has a line with the numbers of NPUs."""
    return any(line.lstrip().startswith("npus_count:") for line in text.splitlines())


def read_astra_sim(text: str) -> Keys:
    """Return the keys of a fabric; raise `Unmapped` for any other network."""
    document = _document(text)
    kinds, counts, rates = (_list(document, name) for name in NAMES)
    if not len(kinds) == len(counts) == len(rates) == PAIR:
        what = f"must have two dimensions, HB domains and rails, got {len(kinds)}"
        raise Unmapped(_line(document, "topology"), what)
    _require_switches(document, kinds, counts)
    return {
        "kinds": "rail-only",
        "domains": _count(document, counts[1]),
        "domain_size": _count(document, counts[0]),
        "hb_rate": gbit(_rate(document, rates[0]) * GBIT_PER_GBYTE),
        "nic_rate": gbit(_rate(document, rates[1]) * GBIT_PER_GBYTE),
    }


def _document(text: str) -> CommentedMap:
    try:
        found = parser("rt").load(text)
    except UNREADABLE as error:
        line = line_of(error, text).removeprefix(":")
        raise Unmapped(int(line or 1), unreadable(error)) from None
    if not isinstance(found, CommentedMap):
        raise Unmapped(1, "must be a mapping")
    return found


def _line(document: CommentedMap, name: str) -> int:
    # Of a mapping that only merges others, no key has a line.
    places = document.lc.data or {}
    return int(places[name][0]) + 1 if name in places else 1


def _list(document: CommentedMap, name: str) -> list[Any]:
    found = plain(document.get(name))
    if not isinstance(found, list) or not found:
        raise Unmapped(_line(document, name), f"{name} must be a list, got {found!r}")
    return found


def _require_switches(document: CommentedMap, kinds: list[Any], counts: list[Any]) -> None:
    """Raise `Unmapped` for a dimension that no switch joins."""
    for place, (kind, count) in enumerate(zip(kinds, counts, strict=True)):
        if kind != "Switch" and not (kind == "Ring" and count == PAIR):
            joined = "HB domain" if place == 0 else "rail"
            what = f"a {joined} is joined by a switch, not by {kind!r} of {count!r} NPUs"
            raise Unmapped(_line(document, "topology"), what)


def _count(document: CommentedMap, found: Any) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise Unmapped(_line(document, "npus_count"), f"must be whole numbers, got {found!r}")
    if found > MOST:
        raise Unmapped(_line(document, "npus_count"), f"must be at most {MOST}, got {found:.3g}")
    return found


def _rate(document: CommentedMap, found: Any) -> float:
    if not isinstance(found, int | float) or isinstance(found, bool) or not 0 < found < 1e9:
        raise Unmapped(_line(document, "bandwidth"), f"must be GB/s, got {found!r}")
    return float(found)
