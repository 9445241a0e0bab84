"""Topology files of ns-3, of SimAI and of ASTRA-sim: graphs of GPUs, switches and rates.

SimAI's first line (`gen_Topo_Template.py`) has the numbers of nodes, of GPUs in a server, of
NVSwitches, of other switches and of links, and the kind of GPU; ASTRA-sim's those of nodes, of
switches and of links. The second one has the numbers of all switches, each other one a link: two
nodes, rate, latency, error rate. GPUs come first, server after server. Servers are HB domains, or
without NVSwitches, each GPU; ASTRA-sim's file names none: they are the NPUs of switches that each
join as many consecutive NPUs, and nothing else; without such switches, each NPU.

Links that do not lead to HB switches are NIC ports. A network that the keys of a regular fabric
describe becomes these keys: rails, with spine switches or without, with one or two ports. Any other
becomes `links`, with its switches named by their tier and number: `asw24`, `psw40`. Switches
without a link are left out, and latencies and error rates of links: latencies of an emulated path
are longer.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from statistics import median_high

from scenarios.format.units import MOST_IN_NETWORK, MOST_LINKS, rate_text
from traffic_gen.traces.formats.nodes import Malformed

HEADER = re.compile(r"\s*([0-9]{1,20})((?:\s+[0-9]{1,20}){4})\s+\S+\s*")
# Of ASTRA-sim's first line.
NUMBERS, MOST_DIGITS = 3, 9
UNIT = r"([kKMGT]?|[KMG]i)([bB])(?:ps|/s)"
LINK = re.compile(
    rf"\s*([0-9]{{1,9}})\s+([0-9]{{1,9}})\s+([0-9.]{{1,20}})\s*{UNIT}(?:\s+\S+){{0,2}}\s*"
)
# A latency or an error rate above 0.
LEFT_OUT = re.compile(rf"{UNIT}[ \t]+(?:\S+[ \t]+)?[0.]*[1-9]")
NODE, RATE = re.compile(r"[0-9]{1,9}"), re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+")
# Units of ns-3's DataRate: of bits and of bytes.
BITS = {"b": 1, "B": 8}
PREFIXES = {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
PREFIXES |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
FIRST_LINK = 3
# What SimAI calls the switches that NICs lead to, those above and those above these.
TIERS = ("asw", "psw", "dsw")
MOST_PORTS = 2

Links = dict[int, dict[int, float]]
"""For each node, its neighbours with the rate in bit/s."""


@dataclass
class Graph:
    """Nodes and links: GPUs in servers, which are HB domains.

    Each GPU has links to some of the `nvswitches`, or there are none, and domains of one GPU.
    """

    gpus: int
    server_size: int
    nvswitches: frozenset[int]
    links: Links

    def is_gpu(self, node: int) -> bool:
        """Whether a node is a GPU."""
        return node < self.gpus

    def above(self, node: int) -> list[int]:
        """The switches outside servers that a node has links to, in the file's order."""
        return [n for n in self.links[node] if not self.is_gpu(n) and n not in self.nvswitches]

    @property
    def servers(self) -> int:
        """The number of servers."""
        return self.gpus // self.server_size


def is_simai(text: str) -> bool:
    """Whether a text begins with a line of numbers, and perhaps a kind of GPU."""
    numbers = text.partition("\n")[0].split()[:-1]
    return bool(numbers) and all(map(str.isdecimal, numbers))


def read_simai(text: str) -> dict[str, object]:
    """Return the keys of a fabric; raise `Malformed` for any other network."""
    lines = text.splitlines()
    header = HEADER.fullmatch(lines[0])
    if header is None or len(lines) < FIRST_LINK - 1:
        raise Malformed(1, "must have five numbers and the kind of GPU, and a line of switches")
    nodes, (size, nvswitches, others, count) = int(header[1]), map(int, header[2].split())
    if max(nodes, size, nvswitches, others, count) > MOST_IN_NETWORK:
        what = f"must have numbers of at most {MOST_IN_NETWORK}, got"
        raise Malformed(1, f"{what} {header[0].strip()!r}")
    gpus = nodes - nvswitches - others
    if size < 1 or gpus < size or gpus % size:
        raise Malformed(1, f"number of GPUs must be a multiple of {size}, got {gpus}")
    if nvswitches % (gpus // size):
        what = f"{gpus // size} servers must have equally many NVSwitches, got {nvswitches}"
        raise Malformed(1, what)
    switches = _listed_switches(lines[1], gpus, nodes)
    links = _links_of(lines, nodes, count)
    # Without NVSwitches, GPUs of a server meet in the network alone.
    size = size if nvswitches else 1
    return _keys_of(Graph(gpus, size, frozenset(switches[:nvswitches]), links))


def is_ns3(text: str) -> bool:
    """Whether a text begins with a line of three numbers."""
    numbers = text.partition("\n")[0].split()
    return len(numbers) == NUMBERS and all(map(str.isdecimal, numbers))


def read_ns3(text: str) -> dict[str, object]:
    """Return the keys of a fabric; raise `Malformed` for any other network."""
    lines = text.splitlines()
    numbers = [int(word) for word in lines[0].split() if len(word) <= MOST_DIGITS]
    if len(numbers) < NUMBERS or max(numbers) > MOST_IN_NETWORK or len(lines) < FIRST_LINK - 1:
        what = f"must have numbers of at most {MOST_IN_NETWORK}, and a line of switches"
        raise Malformed(1, f"{what}, got {lines[0].strip()[:60]!r}")
    nodes, switches, count = numbers
    if switches >= nodes:
        raise Malformed(1, f"must have more nodes than switches, got {nodes} and {switches}")
    gpus = nodes - switches
    _listed_switches(lines[1], gpus, nodes)
    links = _links_of(lines, nodes, count)
    size, of_domains = _hb_switches(gpus, links)
    return _keys_of(Graph(gpus, size, of_domains, links))


def _hb_switches(gpus: int, links: Links) -> tuple[int, frozenset[int]]:
    """Return the NPUs of an HB domain, and the switches of all domains; 1 and none without them."""
    runs = {node: _run(links[node], gpus) for node in links if node >= gpus}
    servers = {run for run in runs.values() if 0 < len(run) < gpus}
    sizes = sorted(map(len, servers))
    if sum(sizes) == gpus == len({*chain(*servers)}) and sizes[0] < sizes[-1]:
        what = f"servers must have equally many NPUs, got {sizes[0]} and {sizes[-1]}"
        raise Malformed(FIRST_LINK, f"{what}: describe the network by keys, with domain_sizes")
    blocks = {node: run for node, run in runs.items() if run and not run.start % len(run)}
    for size in sorted({len(block) for block in blocks.values()}):
        switches = frozenset(node for node, block in blocks.items() if len(block) == size)
        if {gpu for node in switches for gpu in blocks[node]} == set(range(gpus)):
            return size, switches
    return 1, frozenset()


def _run(near: Iterable[int], gpus: int) -> range:
    """Return the consecutive NPUs that a switch joins, and nothing else; else none."""
    nodes = sorted(near)
    run = range(nodes[0], nodes[0] + len(nodes))
    return run if len(run) > 1 and run.stop <= gpus and nodes == list(run) else range(0)


def _keys_of(network: Graph) -> dict[str, object]:
    """Return the keys of a fabric; raise `Malformed` for any other network."""
    hb_rate, ports = _hb_rate(network), _ports(network)
    keys: dict[str, object] = {"domains": network.servers, "domain_size": network.server_size}
    if not ports:
        rate = rate_text(hb_rate)
        return keys | {"kinds": "rail-only", "hb_rate": rate, "nic_rate": rate}
    links, gpus = network.links, range(network.gpus)
    # The usual rate of a NIC; links with another one name it.
    nic_rate = median_high(sum(links[gpu][n] for n in network.above(gpu)) for gpu in gpus)
    # In a domain of one GPU, nothing uses the HB link.
    keys |= {"hb_rate": rate_text(hb_rate or nic_rate), "nic_rate": rate_text(nic_rate)}
    keys |= {"nic_ports": ports} if ports > 1 else {}
    return keys | (_regular(network, ports, nic_rate) or _custom(network, nic_rate / ports))


def _links_of(lines: Sequence[str], nodes: int, count: int) -> Links:
    """Return the links in the lines from the third one on; raise `Malformed` for any other line."""
    links: Links = defaultdict(dict)
    written = [(at, line) for at, line in enumerate(lines[2:], FIRST_LINK) if line.strip()]
    # ns-3 reads as many links as the first line has; a description may follow them.
    listed, after = written[:count], written[count:]
    got = len(listed) + sum(LINK.fullmatch(line) is not None for _, line in after)
    if got != count:
        raise Malformed(1, f"number of links must be {count}, got {got}")
    for number, line in listed:
        link = LINK.fullmatch(line)
        one, other = (int(link[1]), int(link[2])) if link else (0, 0)
        if link is None or max(one, other) >= nodes or one == other:
            what = f"must be two of {nodes} nodes, a rate (`200Gbps`), latency and error rate"
            raise Malformed(number, f"{what}, got {line.strip()[:60]!r}")
        if other in links[one]:
            raise Malformed(number, f"duplicate link of {one} and {other}")
        # Whole, so that one rate is the same in all units.
        unit_bps = PREFIXES[link[4]] * BITS[link[5]]
        rate_bps = round(float(link[3]) * unit_bps) if RATE.fullmatch(link[3]) else 0
        if not rate_bps:
            raise Malformed(number, f"must have a rate above 0, got {link[3]!r}")
        links[one][other] = links[other][one] = rate_bps
    return links


def _listed_switches(line: str, gpus: int, nodes: int) -> list[int]:
    """Return the numbers of the switches in the second line, which are those behind the GPUs."""
    words = line.split()
    switches = [int(word) for word in words if NODE.fullmatch(word)]
    if len(words) != nodes - gpus or sorted(switches) != list(range(gpus, nodes)):
        what = f"must list the switches, nodes {gpus} to {nodes - 1}"
        raise Malformed(2, what if nodes > gpus else "must be empty: there are no switches")
    return switches


def _hb_rate(network: Graph) -> float:
    """Return the rate of each GPU to its NVSwitches, which the GPUs of its server alone share.

    0 without NVSwitches.
    """
    rates: set[float] = set()
    of_server: dict[int, set[int]] = defaultdict(set)
    for gpu in range(network.gpus):
        links = network.links[gpu]
        inside = links.keys() & network.nvswitches
        if bool(inside) != bool(network.nvswitches) or any(map(network.is_gpu, links)):
            switches = "NVSwitches and to other switches" if network.nvswitches else "switches"
            what = f"GPU {gpu} must have links to {switches} alone, got those"
            raise Malformed(FIRST_LINK, f"{what} to {sorted(links)[:5]}")
        rates.add(sum(links[nvswitch] for nvswitch in inside))
        of_server[gpu // network.server_size] |= inside
    for server, nvswitches in of_server.items():
        gpus = {server * network.server_size + place for place in range(network.server_size)}
        if any(network.links[nvswitch].keys() != gpus for nvswitch in nvswitches):
            what = f"must share their NVSwitches, with no other GPU, got {sorted(nvswitches)}"
            raise Malformed(FIRST_LINK, f"GPUs of server {server} {what}")
    if len(rates) != 1:
        got = ", ".join(f"{rate / 1e9:g}" for rate in sorted(rates)[:5])
        what = "all links within servers must have one rate"
        raise Malformed(FIRST_LINK, f"{what}, got {got} Gbit/s")
    return rates.pop()


def _ports(network: Graph) -> int:
    """Return the number of NIC ports of each GPU; 0 in one server without a network."""
    counts = {len(network.above(gpu)): gpu for gpu in reversed(range(network.gpus))}
    if len(counts) > 1:
        what = ", ".join(f"GPU {gpu} has {ports}" for ports, gpu in sorted(counts.items()))
        raise Malformed(FIRST_LINK, f"all GPUs must have equally many NIC ports, got: {what}")
    (ports,) = counts
    if ports > MOST_PORTS:
        what = f"a NIC has at most {MOST_PORTS} ports, got {ports} of each GPU"
        raise Malformed(FIRST_LINK, f"{what}: join those of a plane in one link of their rate")
    if not ports and not network.nvswitches:
        raise Malformed(FIRST_LINK, "GPUs must have links to switches, got none")
    if not ports and network.servers > 1:
        what = f"{network.servers} servers have NVLinks alone, and no link to each other"
        raise Malformed(FIRST_LINK, f"{what}: generate one server, or a network with switches")
    return ports


def _regular(network: Graph, ports: int, nic_rate: float) -> dict[str, object] | None:
    """Return the keys of rails with equal links, if the network has them."""
    rails, port_rate = _rails(network, ports), nic_rate / ports
    below = [leaf for of_rail in rails for leaf in of_rail]
    rates = {network.links[gpu][n] for gpu in range(network.gpus) for n in network.above(gpu)}
    if not rails or len(set(below)) < len(below) or rates != {port_rate}:
        return None
    leaves, ups = len(rails[0]), {leaf: set(network.above(leaf)) for leaf in below}
    if leaves == 1 and not any(ups.values()):
        return {"kinds": "rail-only"}
    # The possible keys, each with the groups of rail switches that share spine switches.
    optimized: dict[str, object] = {"kinds": "rail-optimized"}
    shapes: list[tuple[dict[str, object], list[list[int]]]] = []
    if leaves == 1:
        planes = [below[port::ports] for port in range(ports)]
        shapes = [(optimized, [below]), (optimized | {"planes": "separate"}, planes)]
    elif ports == 1:
        shapes = [({"kinds": "rail-only", "rail_leaves": leaves}, rails)]
    for keys, groups in shapes:
        if _are_joined(network, groups, ups):
            spines = _spines(network, ups, -(-network.servers // leaves) * port_rate)
            return keys | spines if spines else None
    return None


def _rails(network: Graph, ports: int) -> list[list[int]]:
    """Return the leaf switches of each rail, port by port, if they divide the servers in order."""
    rails, servers = [], network.servers
    for place in range(network.server_size):
        of_servers = [network.above(s * network.server_size + place) for s in range(servers)]
        for port in range(ports):
            used = [switches[port] for switches in of_servers]
            own = list(dict.fromkeys(used))
            if used != [own[server * len(own) // servers] for server in range(servers)]:
                return []
            rails.append(own)
    return rails if len(set(map(len, rails))) == 1 else []


def _are_joined(network: Graph, groups: list[list[int]], ups: dict[int, set[int]]) -> bool:
    """Whether each group has equally many spine switches that join all of it, and nothing else."""
    spines = [ups[group[0]] for group in groups]
    return len(set(map(len, spines))) == 1 and all(
        own
        and all(ups[leaf] == own for leaf in group)
        and all(network.links[spine].keys() == set(group) for spine in own)
        for group, own in zip(groups, spines, strict=True)
    )


def _spines(network: Graph, ups: dict[int, set[int]], down: float) -> dict[str, object] | None:
    """Return the spine switches and oversubscription of equal uplinks; `None` if they have more.

    `down` is the rate of a leaf switch's links to GPUs, of the leaf with most servers.
    """
    rates = {network.links[leaf][spine] for leaf, own in ups.items() for spine in own}
    spines = len(next(iter(ups.values())))
    over = down / (spines * max(rates))
    return {"spines": spines, "oversubscription": over} if len(rates) == 1 and over >= 1 else None


def _custom(network: Graph, port_rate: float) -> dict[str, object]:
    """Return the links of the network: those to one switch with one rate in one entry.

    Raise `Malformed` if they are too many.
    """
    names = _names(network)
    order = {node: place for place, node in enumerate(names)}
    entries: dict[tuple[int, float], list[str]] = defaultdict(list)
    for node, name in names.items():
        for upper in network.above(node):
            if order[node] < order[upper]:
                entries[upper, network.links[node][upper]].append(name)
    if (count := sum(map(len, entries.values()))) > MOST_LINKS:
        what = f"network without regular rails must have at most {MOST_LINKS} links of NICs and"
        raise Malformed(1, f"{what} of switches, got {count}: generate one of fewer GPUs")
    links = [
        {"from": lower, "to": names[upper]}
        | ({} if rate == port_rate else {"rate": rate_text(rate)})
        for (upper, rate), lower in entries.items()
    ]
    return {"kinds": "custom", "links": links}


def _names(network: Graph) -> dict[int, str]:
    """Return the names of GPUs, then of the switches above, tier by tier."""
    size = network.server_size
    names = {gpu: f"d{gpu // size}g{gpu % size}" for gpu in range(network.gpus)}
    tier = sorted({switch for gpu in names for switch in network.above(gpu)})
    for kind in chain(TIERS, repeat(TIERS[-1])):
        names |= {switch: f"{kind}{switch}" for switch in tier}
        tier = sorted({above for node in tier for above in network.above(node)} - names.keys())
        if not tier:
            break
    return names
