"""Topology files of ns-3: SimAI's of `gen_Topo_Template.py`, and ASTRA-sim's, as keys of a fabric.

SimAI's first line has the numbers of nodes, of GPUs in a server, of NVSwitches, of other switches
and of links, and the kind of GPU; ASTRA-sim's those of nodes, of switches and of links. The second
one has the numbers of all switches, each other one a link: two nodes, rate, latency, error rate.
GPUs come first, server after server. Servers are HB domains.

ASTRA-sim's file names no HB domains: they are the NPUs of switches that each join as many
consecutive NPUs, and nothing else; without such switches, each NPU is a domain of its own.
"""

import re
from collections.abc import Iterable

from scenarios.format.networks.graph import (
    FIRST_LINK,
    Graph,
    Links,
    keys_of,
    links_of,
    listed_switches,
)
from scenarios.format.networks.mapping import MOST, Keys, Unmapped

HEADER = re.compile(r"\s*([0-9]{1,20})((?:\s+[0-9]{1,20}){4})\s+\S+\s*")
# Of ASTRA-sim's first line.
NUMBERS, MOST_DIGITS = 3, 9


def is_simai(text: str) -> bool:
    """Whether a text begins with a line of numbers, and perhaps a kind of GPU."""
    numbers = text.partition("\n")[0].split()[:-1]
    return bool(numbers) and all(number.isdecimal() for number in numbers)


def read_simai(text: str) -> Keys:
    """Return the keys of a fabric; raise `Unmapped` for any other network."""
    lines = text.splitlines()
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
    switches = listed_switches(lines[1], gpus, nodes)
    links = links_of(lines, nodes, count)
    return keys_of(Graph(gpus, size, frozenset(switches[:nvswitches]), links))


def is_ns3(text: str) -> bool:
    """Whether a text begins with a line of three numbers."""
    numbers = text.partition("\n")[0].split()
    return len(numbers) == NUMBERS and all(number.isdecimal() for number in numbers)


def read_ns3(text: str) -> Keys:
    """Return the keys of a fabric; raise `Unmapped` for any other network."""
    lines = text.splitlines()
    numbers = [int(word) for word in lines[0].split() if len(word) <= MOST_DIGITS]
    if len(numbers) < NUMBERS or max(numbers) > MOST or len(lines) < FIRST_LINK - 1:
        what = f"must have numbers of at most {MOST}, and a line of switches"
        raise Unmapped(1, f"{what}, got {lines[0].strip()[:60]!r}")
    nodes, switches, count = numbers
    if switches >= nodes:
        raise Unmapped(1, f"must have more nodes than switches, got {nodes} and {switches}")
    gpus = nodes - switches
    listed_switches(lines[1], gpus, nodes)
    links = links_of(lines, nodes, count)
    size, of_domains = _hb_switches(gpus, links)
    return keys_of(Graph(gpus, size, of_domains, links))


def _hb_switches(gpus: int, links: Links) -> tuple[int, frozenset[int]]:
    """Return the NPUs of an HB domain, and the switches of all domains; 1 and none without them."""
    blocks = {node: _block(links[node], gpus) for node in links if node >= gpus}
    for size in sorted({len(block) for block in blocks.values() if block}):
        switches = frozenset(node for node, block in blocks.items() if len(block) == size)
        if {gpu for node in switches for gpu in blocks[node]} == set(range(gpus)):
            return size, switches
    return 1, frozenset()


def _block(near: Iterable[int], gpus: int) -> range:
    """Return the consecutive NPUs that a switch joins, and nothing else; else none."""
    nodes = sorted(near)
    block = range(nodes[0], nodes[0] + len(nodes))
    is_one = len(block) > 1 and block.stop <= gpus and block.start % len(block) == 0
    return block if is_one and nodes == list(block) else range(0)
