"""Paths of many pairs of GPUs at once, as rows of numbered link directions.

Most paths consist of parts that many pairs share: out of the source's domain by an egress GPU, and
from its switch to the destination. `Routing` computes each part once. A pair with a choice among
egress GPUs, or with further transit GPUs, as in a fabric with failures, is followed hop by hop.
"""

from collections.abc import Sequence

import numpy as np

from model.arrays import Ints
from model.fabric.topology import Gpu, Hop, LinkKind
from model.routing.paths import Routing

# Stands for no hop in a row; a row without hops means that the destination is unreachable.
NO_HOP = -1
# Marks a part of a path that the source or switch does not determine with the destination alone.
UNKNOWN = -2


class Directions:
    """Numbers of link directions, in the order of first use."""

    def __init__(self) -> None:
        self.hops: list[Hop] = []
        self._numbers: dict[Hop, int] = {}

    def number(self, hop: Hop) -> int:
        """Return the number of a link direction."""
        if hop not in self._numbers:
            self._numbers[hop] = len(self.hops)
            self.hops.append(hop)
        return self._numbers[hop]

    def row(self, hops: Sequence[Hop] | None) -> list[int]:
        """Return the numbers of a path's hops."""
        return [self.number(hop) for hop in hops or ()]


class PairPaths:
    """Paths in a fabric of a given health; GPUs are numbered by domain, then by local rank."""

    def __init__(self, routing: Routing, directions: Directions) -> None:
        self._routing = routing
        self._directions = directions
        self._gpus = routing.topology.gpus
        self._size = routing.topology.spec.domain_size

    def rows(self, sources: Ints, destinations: Ints) -> Ints:
        """Return the path of each pair of GPUs, as a row of numbers padded with `NO_HOP`."""
        egress = self._egress(sources, destinations)
        arrived = egress == destinations
        through = (egress != sources) & ~arrived
        known = egress != UNKNOWN
        known[through] &= self._egress(egress[through], destinations[through]) == egress[through]
        leaves = known & ~arrived
        up, down, nic, leaf, ascent, descent = self._links()
        rows = np.full((len(sources), 5), NO_HOP)
        within = known & (egress != sources)
        rows[within, 0], rows[within, 3] = up[sources[within]], down[egress[within]]
        across = within & (leaf[sources] != leaf[egress])
        rows[across, 1], rows[across, 2] = ascent[sources[across]], descent[egress[across]]
        rows[leaves, 4] = nic[egress[leaves]]
        ends = self._from_switches(egress[leaves], destinations[leaves])
        known[leaves] &= ends[:, 0] != UNKNOWN
        rows = np.hstack([rows, np.full((len(rows), ends.shape[1]), NO_HOP)])
        rows[leaves, 5:] = ends
        return self._walked(rows, np.flatnonzero(~known), sources, destinations)

    def _links(self) -> tuple[Ints, ...]:
        """Return each GPU's direction into its HB switch, out of it, and into its rail switch.

        Further columns: a number of the HB switch, and its directions up to the second level and
        down.
        """
        topology, numbers = self._routing.topology, []
        switches = {name: place for place, name in enumerate(topology.hb_leaves)}
        for gpu in self._gpus:
            hb, nic = topology.link_of(gpu, LinkKind.HB), topology.link_of(gpu, LinkKind.NIC)
            switch = hb.upper.node
            hops = [Hop(hb, gpu.name), Hop(hb, switch), Hop(nic, gpu.name)]
            row = [*self._directions.row(hops), switches.get(switch, gpu.domain)]
            numbers.append([*row, *self._trunk(switch)])
        return tuple(np.array(numbers).T)

    def _trunk(self, switch: str) -> list[int]:
        """Return the directions of a leaf HB switch to the second level and back."""
        trunk = self._routing.topology.trunks.get(switch)
        if trunk is None:
            return [NO_HOP, NO_HOP]
        return self._directions.row([Hop(trunk, switch), Hop(trunk, trunk.upper.node)])

    def _egress(self, sources: Ints, destinations: Ints) -> Ints:
        """Return the GPU that each source sends to, or itself; `UNKNOWN` if there are several.

        Within the HB domain this is the destination. It is the same for all equivalent domains.
        """
        first = np.array(self._routing.live.equivalent)
        domains, rails = np.divmod(sources, self._size)
        same = domains == destinations // self._size
        keys = (first[domains] * self._size + rails) * len(self._gpus) + destinations
        keys = np.where(same, -1 - sources * len(self._gpus) - destinations, keys)
        _, examples, which = np.unique(keys, return_index=True, return_inverse=True)
        egresses = [
            self._only_egress(self._gpus[source], self._gpus[destination])
            for source, destination in zip(
                sources[examples].tolist(), destinations[examples].tolist(), strict=True
            )
        ]
        rail = np.array(egresses, np.int64)[which]
        return np.where(rail == UNKNOWN, UNKNOWN, sources - rails + rail)

    def _only_egress(self, source: Gpu, destination: Gpu) -> int:
        egress = self._routing.egress(source, destination)
        return egress[0] if len(egress) == 1 else UNKNOWN

    def _from_switches(self, egress: Ints, destinations: Ints) -> Ints:
        """Return the rest of each path, from the switch of an egress GPU's NIC; or `UNKNOWN`."""
        switches = [
            "" if nic is None else nic.upper.node
            for nic in (self._routing.live.nic[gpu] for gpu in self._gpus)
        ]
        names, switch = np.unique(switches, return_inverse=True)
        keys, which = np.unique(
            switch[egress] * len(self._gpus) + destinations, return_inverse=True
        )
        pairs = zip(*(part.tolist() for part in np.divmod(keys, len(self._gpus))), strict=True)
        rows = [self._from_switch(str(names[s]), self._gpus[gpu]) for s, gpu in pairs]
        return _table(rows)[which]

    def _from_switch(self, switch: str, destination: Gpu) -> list[int]:
        routing, node = self._routing, switch
        hops: list[Hop] = []
        while node != destination.name:
            if node not in routing.topology.switch_by_name:
                return [UNKNOWN]
            ports = routing.ports(node, destination)
            next_hop = routing.selection.port(node, destination, ports)
            if ports.by_origin or next_hop is None:
                return [UNKNOWN]
            hops += next_hop
            node = next_hop[-1].receiver
        return self._directions.row(hops)

    def _walked(self, rows: Ints, places: Ints, sources: Ints, destinations: Ints) -> Ints:
        """Return the rows, with those at `places` found hop by hop from source to destination."""
        if not len(places):
            return rows
        pairs = zip(sources[places].tolist(), destinations[places].tolist(), strict=True)
        walks = [self._routing.path_if_any(self._gpus[a], self._gpus[b]) for a, b in pairs]
        walked = _table([self._directions.row(hops) for hops in walks])
        width = max(rows.shape[1], walked.shape[1])
        rows = np.pad(rows, ((0, 0), (0, width - rows.shape[1])), constant_values=NO_HOP)
        rows[places] = NO_HOP
        rows[places, : walked.shape[1]] = walked
        return rows


def _table(rows: Sequence[Sequence[int]]) -> Ints:
    """Return rows of different lengths as a table, padded with `NO_HOP`; at least one column."""
    table = np.full((len(rows), max([1, *map(len, rows)])), NO_HOP)
    for row, numbers in zip(table, rows, strict=True):
        row[: len(numbers)] = numbers
    return table
