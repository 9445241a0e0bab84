"""Networks in the files of other tools, as keys of a scenario's fabric.

Of ASTRA-sim, the network file of its analytical backend (`network.yml`):

    topology: [ Switch, Switch ]
    npus_count: [ 8, 4 ]
    bandwidth: [ 450, 50 ]     # 2^30 bytes a second of a link
    latency: [ 500, 1000 ]     # ns of a link

The first dimension is the HB domain, the second one joins the NPUs that have the same place in
their domains: it is the rails. A network of one dimension is one HB domain.

Of SimAI, the topology file of `gen_Topo_Template.py`. The first line has the numbers of nodes, of
GPUs in a server, of NVSwitches, of other switches and of links, and the kind of GPU; the second one
the numbers of all switches; each other one a link: two nodes, rate, latency, error rate. GPUs come
first, server after server. Servers are HB domains, and the switches that NICs lead to are rail
switches; several of a rail that have spine switches of their own are its leaves.

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
NETWORK_KEYS = (*DIMENSIONS, "latency")
# Its GB are 2^30 bytes (`bw_GBps_to_Bpns` of the analytical backend).
GBIT_PER_GBYTE = 8 * 2**30 / 1e9
# Two NPUs have one link, whatever the kind; of more, a kind has what no switch has.
PAIR = 2
UNLIKE_A_SWITCH = {
    "Ring": "its NPUs have links to two neighbours alone",
    "FullyConnected": "its NPUs have a link for each other NPU, where a switch has one for all",
}
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
    """Whether a text has a line that begins with a key of the network file."""
    keys = tuple(f"{key}:" for key in NETWORK_KEYS)
    return any(line.lstrip().startswith(keys) for line in text.splitlines())


def read_astra_sim(text: str) -> Keys:
    """Return the keys of a fabric; raise `Unmapped` for any other network."""
    document = _document(text)
    kinds, counts, rates = (_list(document, name) for name in DIMENSIONS)
    if not len(kinds) == len(counts) == len(rates) <= PAIR:
        what = "must have one dimension, an HB domain, or two, HB domains and rails, got"
        raise Unmapped(document.line(("topology",)), f"{what} {len(kinds)}")
    _require_switches(document, kinds, counts)
    size, domains = _count(document, counts[0]), 1
    if len(counts) == PAIR:
        domains = _count(document, counts[1])
    return {
        "kinds": "rail-only",
        "domains": domains,
        "domain_size": size,
        "hb_rate": _gbit(_rate(document, rates[0]) * GBIT_PER_GBYTE),
        "nic_rate": _gbit(_rate(document, rates[-1]) * GBIT_PER_GBYTE),
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
        if kind != "Switch" and not (str(kind) in UNLIKE_A_SWITCH and count == PAIR):
            joined = "an HB domain" if place == 0 else "a rail"
            got = f"{str(kind)[:40]!r} of {str(count)[:40]} NPUs"
            what = f"{joined} must be a switch, got {got}: {reason}"
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
    """Whether a text begins with a line of numbers, and perhaps a kind of GPU."""
    numbers = text.partition("\n")[0].split()[:-1]
    return bool(numbers) and all(number.isdecimal() for number in numbers)


def read_simai(text: str) -> Keys:
    """Return the keys of a fabric; raise `Unmapped` for any other network."""
    network = _network(text.splitlines())
    hb_rates, rails = _ends(network)
    nic_rate = _only({rate for _, rate in rails.values()}, "NIC links")
    leaves = _leaves(network, rails)
    keys: Keys = {
        "domains": network.gpus // network.server_size,
        "domain_size": network.server_size,
        "hb_rate": _gbit(_only(hb_rates, "NVLinks")),
        "nic_rate": _gbit(nic_rate),
    }
    return keys | _uplinks(network, leaves, nic_rate)


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
    if not nvswitches or nvswitches % (gpus // size):
        what = f"{gpus // size} servers must have equally many NVSwitches, one or more, got"
        raise Unmapped(1, f"{what} {nvswitches}")
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
    """Return the rates of GPUs to their NVSwitches, and the switch and the rate of each NIC."""
    hb_rates: set[float] = set()
    rails: dict[int, tuple[int, float]] = {}
    of_server: dict[int, set[int]] = defaultdict(set)
    for gpu in range(network.gpus):
        links = network.links[gpu]
        inside = [node for node in links if node in network.nvswitches]
        outside = [node for node in links if node not in network.nvswitches]
        if len(outside) > 1 and not any(map(network.is_gpu, outside)):
            raise Unmapped(FIRST_LINK, _several_ports(network, gpu, outside))
        if not inside or len(outside) != 1 or network.is_gpu(outside[0]):
            what = f"GPU {gpu} must have links to NVSwitches and a NIC link to a switch"
            raise Unmapped(FIRST_LINK, f"{what}, got {len(inside)} and {len(outside)}")
        hb_rates.add(sum(links[nvswitch] for nvswitch in inside))
        rails[gpu] = outside[0], links[outside[0]]
        of_server[gpu // network.server_size].update(inside)
    for server, nvswitches in of_server.items():
        first = server * network.server_size
        gpus = set(range(first, first + network.server_size))
        if any(network.links[nvswitch].keys() != gpus for nvswitch in nvswitches):
            what = f"must share their NVSwitches, with no other GPU, got {sorted(nvswitches)}"
            raise Unmapped(FIRST_LINK, f"GPUs of server {server} {what}")
    return hb_rates, rails


def _several_ports(network: _Network, gpu: int, switches: list[int]) -> str:
    """Say why NICs with several ports have no fabric here, and what they form."""
    above = [
        {n for n in network.links[switch] if not network.is_gpu(n)} - network.nvswitches
        for switch in switches
    ]
    planes = "two planes" if len(above) == PAIR and not above[0] & above[1] else "one plane"
    ports = f"{len(switches)} NIC ports, to the switches {sorted(switches)} of {planes}"
    return f"GPU {gpu} has {ports}; a NIC here has one port"


def _leaves(network: _Network, rails: dict[int, tuple[int, float]]) -> list[list[int]]:
    """Return the leaf switches of each rail; no two rails share one."""
    size, servers = network.server_size, network.gpus // network.server_size
    of_rails = [[rails[s * size + place][0] for s in range(servers)] for place in range(size)]
    leaves = [list(dict.fromkeys(of_rail)) for of_rail in of_rails]
    count = len(leaves[0])
    if len({leaf for of_rail in leaves for leaf in of_rail}) != sum(map(len, leaves)):
        what = "GPUs with different places in their servers share a switch"
        raise Unmapped(FIRST_LINK, f"{what}: this network has no rails")
    for of_rail, own in zip(of_rails, leaves, strict=True):
        in_order = [own[server * len(own) // servers] for server in range(servers)]
        if len(own) != count or of_rail != in_order:
            what = f"{servers} servers must be divided equally, in order, among the leaf switches"
            raise Unmapped(FIRST_LINK, f"{what} of each rail, got the switches {own[:5]}")
    return leaves


def _uplinks(network: _Network, leaves: list[list[int]], nic_rate: float) -> Keys:
    """Return the kind of fabric, its leaves and spines, and the uplinks' oversubscription."""
    below = {leaf for of_rail in leaves for leaf in of_rail}
    ups = {
        leaf: {node: rate for node, rate in network.links[leaf].items() if not network.is_gpu(node)}
        for leaf in below
    }
    spines = [set(ups[of_rail[0]]) for of_rail in leaves]
    count, servers = len(leaves[0]), network.gpus // network.server_size
    has_own = count > 1 and sum(map(len, spines)) == len(set().union(*spines))
    groups = leaves if has_own else [sorted(below)]
    if any(set(ups[leaf]) != set(ups[group[0]]) for group in groups for leaf in group):
        raise Unmapped(FIRST_LINK, "all rail switches must be connected to the same spine switches")
    if below & set().union(*spines):
        raise Unmapped(FIRST_LINK, "rail switches must be connected to spine switches alone")
    if any(set(network.links[spine]) - below for of_rail in spines for spine in of_rail):
        raise Unmapped(FIRST_LINK, "must have at most two layers of switches")
    if count > 1 and not (has_own and spines[0]):
        where = "share spine switches with other rails" if spines[0] else "have no spine switch"
        what = f"the {count} leaf switches of rail 0, {leaves[0][:5]}, {where}"
        raise Unmapped(FIRST_LINK, f"{what}; several leaves of a rail need spines of its own")
    if not spines[0]:
        return {"kinds": "rail-only"}
    rate = _only({rate for of_leaf in ups.values() for rate in of_leaf.values()}, "uplinks")
    down, up = servers / count * nic_rate, len(spines[0]) * rate
    keys: Keys = {"spines": len(spines[0]), "oversubscription": max(1.0, down / up)}
    if has_own:
        return keys | {"kinds": "rail-only", "rail_leaves": count}
    return keys | {"kinds": "rail-optimized"}


FORMATS = {"SimAI": (is_simai, read_simai), "ASTRA-sim": (is_astra_sim, read_astra_sim)}
