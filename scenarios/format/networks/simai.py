"""SimAI's topology file, of `gen_Topo_Template.py`, as keys of a fabric.

The first line has the numbers of nodes, of GPUs in a server, of NVSwitches, of other switches and
of links, and the kind of GPU; the second one the numbers of all switches; each other one a link:
two nodes, rate, latency, error rate. GPUs come first, server after server. Servers are HB domains,
the links to other switches NIC ports.

A network that the keys of a regular fabric describe becomes these keys: rails, with spine switches
or without, with one or two ports. Any other becomes `links`, with its switches named by their tier
and number: `asw24`, `psw40`. Latencies and error rates are left out: latencies of an emulated path
are longer. So are switches without a link.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, repeat
from statistics import median_high

from scenarios.format.networks.mapping import MOST, Keys, Unmapped, gbit

HEADER = re.compile(r"\s*([0-9]{1,20})((?:\s+[0-9]{1,20}){4})\s+\S+\s*")
LINK = re.compile(r"\s*([0-9]{1,9})\s+([0-9]{1,9})\s+([0-9.]{1,20})\s*([GT])bps(?:\s+\S+){0,2}\s*")
NODE, RATE = re.compile(r"[0-9]{1,9}"), re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+")
GBPS = {"G": 1.0, "T": 1000.0}
FIRST_LINK = 3
# What SimAI calls the switches that NICs lead to, those above and those above these.
TIERS = ("asw", "psw", "dsw")
MOST_PORTS = 2


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
    return bool(numbers) and all(number.isdecimal() for number in numbers)


def read_simai(text: str) -> Keys:
    """Return the keys of a fabric; raise `Unmapped` for any other network."""
    network = _network(text.splitlines())
    hb_rate, ports = _hb_rate(network), _ports(network)
    keys: Keys = {
        "domains": network.servers,
        "domain_size": network.server_size,
        "hb_rate": gbit(hb_rate),
    }
    if not ports:
        return keys | {"kinds": "rail-only", "nic_rate": gbit(hb_rate)}
    # The usual rate of a NIC; links with another one name it.
    nic_rate = median_high(
        sum(network.links[gpu][switch] for switch in network.above(gpu))
        for gpu in range(network.gpus)
    )
    keys |= {"nic_rate": gbit(nic_rate)} | ({"nic_ports": ports} if ports > 1 else {})
    return keys | (_regular(network, ports, nic_rate) or _custom(network, nic_rate / ports))


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
        got = ", ".join(f"{rate:g}" for rate in sorted(rates)[:5])
        raise Unmapped(FIRST_LINK, f"all {what} must have one rate, got {got} Gbit/s")
    return next(iter(rates))


def _hb_rate(network: _Network) -> float:
    """Return the rate of each GPU to its NVSwitches, which the GPUs of its server alone share."""
    rates: set[float] = set()
    of_server: dict[int, set[int]] = defaultdict(set)
    for gpu in range(network.gpus):
        links = network.links[gpu]
        inside = links.keys() & network.nvswitches
        if not inside or any(map(network.is_gpu, links)):
            what = f"GPU {gpu} must have links to NVSwitches and to other switches alone, got those"
            raise Unmapped(FIRST_LINK, f"{what} to {sorted(links)[:5]}")
        rates.add(sum(links[nvswitch] for nvswitch in inside))
        of_server[gpu // network.server_size] |= inside
    for server, nvswitches in of_server.items():
        first = server * network.server_size
        gpus = set(range(first, first + network.server_size))
        if any(network.links[nvswitch].keys() != gpus for nvswitch in nvswitches):
            what = f"must share their NVSwitches, with no other GPU, got {sorted(nvswitches)}"
            raise Unmapped(FIRST_LINK, f"GPUs of server {server} {what}")
    return _only(rates, "NVLinks")


def _ports(network: _Network) -> int:
    """Return the number of NIC ports of each GPU; 0 in one server without a network."""
    counts = {len(network.above(gpu)): gpu for gpu in reversed(range(network.gpus))}
    if len(counts) > 1:
        what = ", ".join(f"GPU {gpu} has {ports}" for ports, gpu in sorted(counts.items()))
        raise Unmapped(FIRST_LINK, f"all GPUs must have equally many NIC ports, got: {what}")
    (ports,) = counts
    if ports > MOST_PORTS:
        what = f"a NIC has at most {MOST_PORTS} ports, got {ports} of each GPU"
        raise Unmapped(FIRST_LINK, f"{what}: join those of a plane in one link of their rate")
    if not ports and network.servers > 1:
        what = f"{network.servers} servers have NVLinks alone, and no link to each other"
        raise Unmapped(FIRST_LINK, f"{what}: generate one server, or a network with switches")
    return ports


def _regular(network: _Network, ports: int, nic_rate: float) -> Keys | None:
    """Return the keys of rails with equal links, if the network has them."""
    rails, port_rate = _rails(network, ports), nic_rate / ports
    below = [leaf for of_rail in rails for leaf in of_rail]
    rates = {network.links[gpu][n] for gpu in range(network.gpus) for n in network.above(gpu)}
    if not rails or len(set(below)) < len(below) or rates != {port_rate}:
        return None
    leaves, ups = len(rails[0]), {leaf: set(network.above(leaf)) for leaf in below}
    if leaves == 1 and not any(ups.values()):
        return {"kinds": "rail-only"}
    for keys, groups in _shapes(rails, ports):
        if _are_joined(network, groups, ups):
            spines = _spines(network, ups, network.servers / leaves * port_rate)
            return keys | spines if spines else None
    return None


def _shapes(rails: list[list[int]], ports: int) -> Iterator[tuple[Keys, list[list[int]]]]:
    """Yield the possible keys, each with the groups of rail switches that share spine switches."""
    leaves = len(rails[0])
    if leaves == 1:
        first = [of_rail[0] for of_rail in rails]
        yield {"kinds": "rail-optimized"}, [first]
        planes = [first[port::ports] for port in range(ports)]
        yield {"kinds": "rail-optimized", "planes": "separate"}, planes
    elif ports == 1:
        yield {"kinds": "rail-only", "rail_leaves": leaves}, rails


def _rails(network: _Network, ports: int) -> list[list[int]]:
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


def _are_joined(network: _Network, groups: list[list[int]], ups: dict[int, set[int]]) -> bool:
    """Whether each group has equally many spine switches that join all of it, and nothing else."""
    spines = [ups[group[0]] for group in groups]
    return len(set(map(len, spines))) == 1 and all(
        own
        and all(ups[leaf] == own for leaf in group)
        and all(network.links[spine].keys() == set(group) for spine in own)
        for group, own in zip(groups, spines, strict=True)
    )


def _spines(network: _Network, ups: dict[int, set[int]], down: float) -> Keys | None:
    """Return the spine switches and oversubscription of equal uplinks; `None` if they have more."""
    rates = {network.links[leaf][spine] for leaf, own in ups.items() for spine in own}
    spines = len(next(iter(ups.values())))
    over = down / (spines * max(rates))
    return {"spines": spines, "oversubscription": over} if len(rates) == 1 and over >= 1 else None


def _custom(network: _Network, port_rate: float) -> Keys:
    """Return the links of the network: those to one switch with one rate in one entry."""
    names = _names(network)
    order = {node: place for place, node in enumerate(names)}
    entries: dict[tuple[int, float], list[str]] = defaultdict(list)
    for node, name in names.items():
        for upper in network.above(node):
            if order[node] < order[upper]:
                entries[upper, network.links[node][upper]].append(name)
    links = [
        {"from": lower, "to": names[upper]} | ({} if rate == port_rate else {"rate": gbit(rate)})
        for (upper, rate), lower in entries.items()
    ]
    return {"kinds": "custom", "links": links}


def _names(network: _Network) -> dict[int, str]:
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
