"""SimAI's topology file, of `gen_Topo_Template.py`, as keys of a fabric.

The first line has the numbers of nodes, of GPUs in a server, of NVSwitches, of other switches and
of links, and the kind of GPU; the second one the numbers of all switches; each other one a link:
two nodes, rate, latency, error rate. GPUs come first, server after server. Servers are HB domains.
"""

import re

from scenarios.format.networks.graph import FIRST_LINK, Graph, keys_of, links_of, listed_switches
from scenarios.format.networks.mapping import MOST, Keys, Unmapped

HEADER = re.compile(r"\s*([0-9]{1,20})((?:\s+[0-9]{1,20}){4})\s+\S+\s*")


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
