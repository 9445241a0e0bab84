"""Networks in the files of other tools, as keys of a scenario's fabric.

Of ASTRA-sim, the network file of its analytical backend (`network.yml`):

    topology: [ Switch, Switch ]
    npus_count: [ 8, 4 ]
    bandwidth: [ 450, 50 ]     # GB/s of a link
    latency: [ 500, 1000 ]     # ns of a link

The first dimension is the HB domain, the second one joins the NPUs that have the same place in
their domains: it is the rails.

Of SimAI, the topology file of `gen_Topo_Template.py`. The first line has the numbers of nodes, of
GPUs in a server, of NVSwitches, of other switches and of links, and the kind of GPU; the second one
the numbers of all switches; each other one a link: two nodes, rate, latency, error rate. GPUs come
first, server after server. Servers are HB domains, and the switches that NICs lead to are rail
switches.

Latencies and error rates are left out: latencies of an emulated path are longer.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml.comments import CommentedMap

from linux.files.user_files import Unreadable, read_text
from scenarios.format.document import (
    UNREADABLE,
    Document,
    line_of,
    parser,
    plain,
    unreadable,
)

# SimAI's file of 4096 GPUs has 3 MB.
MOST_BYTES = 2**24
# Above the numbers of nodes, NPUs and links of any fabric that can be emulated.
MOST = 1_000_000
# Of ASTRA-sim's network file.
DIMENSIONS = ("topology", "npus_count", "bandwidth")
GBIT_PER_GBYTE = 8
# On two NPUs, a ring is the two directions of a switch.
PAIR = 2
# Of SimAI's topology file.
HEADER = re.compile(r"\s*([0-9]{1,20})((?:\s+[0-9]{1,20}){4})\s+\S+\s*")
LINK = re.compile(r"\s*([0-9]{1,9})\s+([0-9]{1,9})\s+([0-9.]{1,20})\s*([GT])bps(?:\s+\S+){0,2}\s*")
NODE, RATE = re.compile(r"[0-9]{1,9}"), re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+")
GBPS = {"G": 1.0, "T": 1000.0}
FIRST_LINK = 3

Keys = dict[str, int | float | str]
"""Keys of a scenario's fabric, with their values."""


class Unmapped(Exception):
    """A file that cannot be read, or whose network no fabric can represent: its line, and why."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line, self.what = line, what


def read_network(path: Path) -> Keys:
    """Return the keys of a fabric from a file, by its content; raise `ValueError` with its line."""
    try:
        text = read_text(path, MOST_BYTES)
    except Unreadable as error:
        raise ValueError(f"{path}: {error}") from None
    try:
        for is_one, read in FORMATS.values():
            if is_one(text):
                return read(text)
    except Unmapped as error:
        raise ValueError(f"{path}:{error.line}: {error.what}") from None
    raise ValueError(f"{path}:1: unknown format of network; known: {', '.join(FORMATS)}")


def _gbit(rate_gbps: float) -> str:
    """Return a rate as scenarios write it."""
    return f"{rate_gbps:.12g} Gbit/s"


def is_astra_sim(text: str) -> bool:
    """Whether a text has a line with the numbers of NPUs."""
    return any(line.lstrip().startswith("npus_count:") for line in text.splitlines())


def read_astra_sim(text: str) -> Keys:
    """Return the keys of a fabric; raise `Unmapped` for any other network."""
    document = _document(text)
    kinds, counts, rates = (_list(document, name) for name in DIMENSIONS)
    if not len(kinds) == len(counts) == len(rates) == PAIR:
        what = f"must have two dimensions, HB domains and rails, got {len(kinds)}"
        raise Unmapped(document.line(("topology",)), what)
    _require_switches(document, kinds, counts)
    return {
        "kinds": "rail-only",
        "domains": _count(document, counts[1]),
        "domain_size": _count(document, counts[0]),
        "hb_rate": _gbit(_rate(document, rates[0]) * GBIT_PER_GBYTE),
        "nic_rate": _gbit(_rate(document, rates[1]) * GBIT_PER_GBYTE),
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
        if kind != "Switch" and not (kind == "Ring" and count == PAIR):
            joined = "an HB domain" if place == 0 else "a rail"
            what = f"{joined} must be a switch, got {kind!r} of {count!r} NPUs"
            raise Unmapped(document.line(("topology",)), what)


def _count(document: Document, npus: Any) -> int:
    if not isinstance(npus, int) or isinstance(npus, bool) or npus < 1:
        raise Unmapped(document.line(("npus_count",)), f"must be whole numbers, got {npus!r}")
    if npus > MOST:
        raise Unmapped(document.line(("npus_count",)), f"must be at most {MOST}, got {npus:.3g}")
    return npus


def _rate(document: Document, rate: Any) -> float:
    if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 < rate < 1e9:
        raise Unmapped(document.line(("bandwidth",)), f"must be GB/s, got {rate!r}")
    return float(rate)


@dataclass
class _Network:
    """Nodes and links: for each node, its neighbours with the rate in Gbit/s."""

    gpus: int
    server_size: int
    nvswitches: frozenset[int]
    links: dict[int, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))

    def is_gpu(self, node: int) -> bool:
        """Whether a node is a GPU."""
        return node < self.gpus


def is_simai(text: str) -> bool:
    """Whether a text begins with the numbers of a topology."""
    return HEADER.fullmatch(text.partition("\n")[0]) is not None


def read_simai(text: str) -> Keys:
    """Return the keys of a fabric; raise `Unmapped` for any other network."""
    network = _network(text.splitlines())
    hb_rates, rails = _ends(network)
    nic_rate = _only({rate for _, rate in rails.values()}, "NIC links")
    switches = _rail_switches(network, rails)
    keys: Keys = {
        "domains": network.gpus // network.server_size,
        "domain_size": network.server_size,
        "hb_rate": _gbit(_only(hb_rates, "NVLinks")),
        "nic_rate": _gbit(nic_rate),
    }
    return keys | _uplinks(network, switches, nic_rate)


def _network(lines: list[str]) -> _Network:
    header = HEADER.fullmatch(lines[0])
    if header is None or len(lines) < FIRST_LINK - 1:
        raise Unmapped(1, "must have five numbers and the kind of GPU, and a line of switches")
    nodes, (size, nvswitches, others, count) = int(header[1]), map(int, header[2].split())
    if max(nodes, size, nvswitches, others, count) > MOST:
        raise Unmapped(1, f"must have numbers of at most {MOST}, got {header[0].strip()!r}")
    gpus = nodes - nvswitches - others
    if size < 1 or gpus < size or gpus % size:
        raise Unmapped(1, f"number of GPUs must be a multiple of {size}, got {gpus}")
    if nvswitches != gpus // size:
        raise Unmapped(1, f"{gpus // size} servers must have one NVSwitch each, got {nvswitches}")
    words = lines[1].split()
    switches = [int(word) for word in words if NODE.fullmatch(word)]
    if len(words) != nvswitches + others or sorted(switches) != list(range(gpus, nodes)):
        raise Unmapped(2, f"must list the switches, nodes {gpus} to {nodes - 1}")
    network = _Network(gpus, size, frozenset(switches[:nvswitches]))
    written = [(at, line) for at, line in enumerate(lines[2:], FIRST_LINK) if line.strip()]
    if len(written) != count:
        raise Unmapped(1, f"must have {count} links, got {len(written)}")
    for number, line in written:
        _add(network, number, line, nodes)
    return network


def _add(network: _Network, number: int, line: str, nodes: int) -> None:
    link = LINK.fullmatch(line)
    if link is None or max(int(link[1]), int(link[2])) >= nodes:
        what = f"must be two of {nodes} nodes, a rate (`200Gbps`), latency and error rate"
        raise Unmapped(number, f"{what}, got {line.strip()[:60]!r}")
    one, other = int(link[1]), int(link[2])
    if other in network.links[one]:
        raise Unmapped(number, f"duplicate link of {one} and {other}")
    if not RATE.fullmatch(link[3]) or not float(link[3]):
        raise Unmapped(number, f"must have a rate above 0, got {link[3]!r}")
    rate = float(link[3]) * GBPS[link[4]]
    network.links[one][other] = network.links[other][one] = rate


def _only(rates: set[float], what: str) -> float:
    if len(rates) != 1:
        raise Unmapped(FIRST_LINK, f"all {what} must have one rate, got {sorted(rates)[:5]} Gbit/s")
    return next(iter(rates))


def _ends(network: _Network) -> tuple[set[float], dict[int, tuple[int, float]]]:
    """Return the rates of NVLinks, and the switch and the rate of each GPU's NIC."""
    hb_rates: set[float] = set()
    rails: dict[int, tuple[int, float]] = {}
    of_server: dict[int, set[int]] = defaultdict(set)
    for gpu in range(network.gpus):
        links = network.links[gpu]
        inside = [node for node in links if node in network.nvswitches]
        outside = [node for node in links if node not in network.nvswitches]
        if len(inside) != 1 or len(outside) != 1 or network.is_gpu(outside[0]):
            what = f"GPU {gpu} must have a link to an NVSwitch and a NIC link to a switch"
            raise Unmapped(FIRST_LINK, f"{what}, got {len(inside)} and {len(outside)}")
        hb_rates.add(links[inside[0]])
        rails[gpu] = outside[0], links[outside[0]]
        of_server[gpu // network.server_size].add(inside[0])
    for server, nvswitches in of_server.items():
        first = server * network.server_size
        joined = set().union(*(network.links[nvswitch] for nvswitch in nvswitches))
        if len(nvswitches) > 1 or joined != set(range(first, first + network.server_size)):
            what = f"must share one NVSwitch, with no other GPU, got {sorted(nvswitches)}"
            raise Unmapped(FIRST_LINK, f"GPUs of server {server} {what}")
    return hb_rates, rails


def _rail_switches(network: _Network, rails: dict[int, tuple[int, float]]) -> list[int]:
    """Return the switch of each rail; no two rails share one."""
    of_rails: list[set[int]] = [set() for _ in range(network.server_size)]
    for gpu, (switch, _) in rails.items():
        of_rails[gpu % network.server_size].add(switch)
    switches = [next(iter(of_rail)) for of_rail in of_rails if len(of_rail) == 1]
    if len(set(switches)) != network.server_size:
        what = "the GPUs with the same place in their servers must share a switch of their own"
        raise Unmapped(FIRST_LINK, f"{what}: this network has no rails of one switch each")
    return switches


def _uplinks(network: _Network, switches: list[int], nic_rate: float) -> Keys:
    """Return the kind of fabric, its spines, and the uplinks' oversubscription."""
    uplinks = [
        {node: rate for node, rate in network.links[switch].items() if not network.is_gpu(node)}
        for switch in switches
    ]
    spines = set(uplinks[0])
    if any(set(of_switch) != spines for of_switch in uplinks) or spines & set(switches):
        raise Unmapped(FIRST_LINK, "all rail switches must be connected to the same spine switches")
    if not spines:
        return {"kinds": "rail-only"}
    if any(set(network.links[spine]) - set(switches) for spine in spines):
        raise Unmapped(FIRST_LINK, "must have at most two layers of switches")
    rate = _only({rate for of_switch in uplinks for rate in of_switch.values()}, "uplinks")
    down, up = network.gpus // network.server_size * nic_rate, len(spines) * rate
    return {
        "kinds": "rail-optimized",
        "spines": len(spines),
        "oversubscription": max(1.0, down / up),
    }


FORMATS = {"SimAI": (is_simai, read_simai), "ASTRA-sim": (is_astra_sim, read_astra_sim)}
