"""ECMP selection: a deterministic choice among equal-cost next hops, balanced unless hashed.

It does not depend on the fabric's health, which has already determined the candidates.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import lcm
from typing import NamedTuple

from model.fabric.build import leaf_of_domain
from model.fabric.spec import Planes, SpineSelection
from model.fabric.topology import Gpu, Hop, NodeKind, OpenFlowSwitch, Topology


def flow_hash(*fields: object) -> int:
    """Return 32 bits of a hash of the fields that tell a flow from others.

    Flows collide as balls thrown into bins do. Those of a CRC, which is linear, would not: in an
    all-to-all over a power of two of spines, they fill all links evenly.
    """
    text = " ".join(map(str, fields))
    return int.from_bytes(blake2b(text.encode(), digest_size=4).digest())


# The hops to the next node: one link, or several over HB switches.
NextHop = tuple[Hop, ...]


class Egress(NamedTuple):
    """Local ranks of the egress GPUs by whose NICs packets leave a domain, or of the destination.

    If it is the sending GPU itself, they leave by its NIC link of the lane `port`.
    """

    ranks: tuple[int, ...] = ()
    port: int = 0


@dataclass(frozen=True)
class Ports:
    """Equal-cost next hops of a switch, in a fixed order: first those to the packet's own lane.

    `spines` are the indices of the spine switches that they lead to, -1 for other nodes. With
    `by_origin`, the source GPU counts, too: in the hash of a flow, or to spread detoured packets,
    which would all take one link by the address of their common destination alone. With several
    `entropies`, its UDP source port counts. On detours, `lost` has the local ranks in the
    destination's domain whose NIC links are lost.
    """

    next_hops: tuple[NextHop, ...]
    spines: tuple[int, ...]
    by_origin: bool = False
    entropies: int = 1
    lost: tuple[int, ...] = ()

    def without(self, place: int) -> "Ports":
        """Return the ports without the one at index `place`, whose link has failed."""
        return replace(
            self,
            next_hops=self.next_hops[:place] + self.next_hops[place + 1 :],
            spines=self.spines[:place] + self.spines[place + 1 :],
        )


@dataclass(frozen=True)
class EcmpSelection:
    """Chooses among the equal-cost next hops of a GPU or a switch."""

    topology: Topology

    def egress_gpu(self, gpu: Gpu, destination: Gpu, egress: Egress) -> int | None:
        """Choose an egress GPU, dealing out all detours of a domain in turn; `None` if empty."""
        ranks = egress.ranks
        if len(ranks) < 2:
            return ranks[0] if ranks else None
        lost = [rail for rail in range(self.topology.spec.domain_size) if rail not in ranks]
        own, wanted = (lost.index(r) if r in lost else 0 for r in (gpu.rail, destination.rail))
        dealt = (self._domains_on(gpu, destination) * len(lost) + own) * len(lost) + wanted
        return ranks[dealt % len(ranks)]

    def _domains_on(self, gpu: Gpu, destination: Gpu) -> int:
        """Number of domains from the GPU's to the destination's, cyclic, less 1."""
        return (destination.domain - gpu.domain - 1) % self.topology.spec.domains

    def port(
        self, switch: str, destination: Gpu, ports: Ports, came_from: str = "", entropy: int = 0
    ) -> NextHop | None:
        """Choose one of these ports; `None` if there are none."""
        if not ports.next_hops:
            return None
        return ports.next_hops[self._place(switch, destination, ports, came_from, entropy)]

    def backup(
        self, switch: str, destination: Gpu, ports: Ports, came_from: str = "", entropy: int = 0
    ) -> NextHop | None:
        """Choose the equal-cost port to use if the chosen one's link fails; `None` without one."""
        if len(ports.next_hops) < 2:
            return None
        others = ports.without(self._place(switch, destination, ports, came_from, entropy))
        return self.port(switch, destination, others, came_from, entropy)

    def _place(
        self, switch: str, destination: Gpu, ports: Ports, came_from: str, entropy: int
    ) -> int:
        """Return the index of the next hop to the packet's spine switch, else of one by number."""
        here = self.topology.switch_by_name[switch]
        if len(ports.next_hops) < 2:
            return 0
        entropy %= ports.entropies  # where rules do not match source ports, none counts
        origin = self.topology.gpu_by_name.get(came_from) if ports.by_origin else None
        if self.topology.spec.nic.links:
            return self._custom_place(here, origin, destination, ports, entropy)
        if here.kind is NodeKind.SPINE_SWITCH:
            return self._turn_at_spine(here, destination, ports) % len(ports.next_hops)
        own, number = self._own_spine(here, origin, destination, ports.lost, entropy)
        if own in ports.spines:
            return ports.spines.index(own)
        return number % len(ports.next_hops)

    def _custom_place(
        self, here: OpenFlowSwitch, origin: Gpu | None, destination: Gpu, ports: Ports, entropy: int
    ) -> int:
        """Deal out the destinations, lowest switch by lowest switch, to the uplinks of this tier.

        A next hop that the destination's lane is linked to comes first. While a packet's own uplink
        works, it keeps it; those of lost uplinks are dealt out to the others. Links within the tier
        count as uplinks where a next hop is one, and only they where all are.
        """
        holder = self.topology.holder(destination)
        last = self.topology.nic_links(holder)[destination.lane]
        if ports.next_hops[0][-1].receiver == last.upper.node:
            return 0
        if origin is None:
            number = self.topology.nic_numbers[last.name] + self.topology.spec.seed
            number //= self.topology.divisors[here.name]
        else:
            number = self._number(origin, destination, entropy)
        places = {hop: place for place, (hop, *_) in enumerate(ports.next_hops)}
        tier_of = self.topology.tier_of
        tiers = {tier_of.get(hop.receiver) for hop in places}
        uplinks = [h for h in self.topology.uplinks_of(here.name) if tier_of[h.receiver] in tiers]
        turns = (places[hop] for hop in _dealt(uplinks, number) if hop in places)
        return next(turns, number % len(ports.next_hops))

    def _number(self, origin: Gpu, destination: Gpu, entropy: int) -> int:
        """A number to choose the uplink of a packet by, whose origin is known."""
        match self.topology.spec.nic.spine_selection:
            case SpineSelection.HASH:
                return self._hash(origin, destination, entropy)
            case SpineSelection.DESTINATION | SpineSelection.SPRAY:
                return self._domains_on(origin, destination)

    def _hash(self, origin: Gpu, destination: Gpu, entropy: int) -> int:
        ends = origin.name, destination.name, destination.lane
        return flow_hash(self.topology.spec.seed, *ends, entropy)

    def _turn_at_spine(self, here: OpenFlowSwitch, destination: Gpu, ports: Ports) -> int:
        """Number the packets from spine switches to a domain, to deal them out to its ports.

        Detours to a lane whose NIC link is lost take a port for each spine switch, those to the
        next such lane the ports after these; where that would repeat itself, one port further on.
        """
        spec, lost, count = self.topology.spec, ports.lost, len(ports.next_hops)
        if destination.rail not in lost:
            return 0 if spec.lanes > 1 else here.index + destination.domain + destination.rail
        spines = min(spec.nic.spines, len(lost) * max(1, spec.domains - 1))
        # A spine switch of one of two planes has one lane alone.
        lane = 0 if spec.nic.planes is Planes.SEPARATE else destination.lane
        taken = (lane * len(lost) + lost.index(destination.rail)) * spines
        turn = here.index % spec.nic.spines + taken + taken // lcm(spines, count)
        return turn + destination.domain + lost[0]

    def _own_spine(
        self,
        here: OpenFlowSwitch,
        origin: Gpu | None,
        destination: Gpu,
        lost: tuple[int, ...],
        entropy: int,
    ) -> tuple[int | None, int]:
        """The spine switch of a packet, if it has one, and a number to choose another one by."""
        spec = self.topology.spec
        if origin is None:
            own = (self.spine_for(destination) + entropy) % spec.nic.spines
            return own, self._displaced(here, destination) + entropy
        match spec.nic.spine_selection:
            case SpineSelection.HASH:
                flow = self._hash(origin, destination, entropy)
                return flow % spec.nic.spines, flow // spec.nic.spines
            case SpineSelection.DESTINATION | SpineSelection.SPRAY:
                own = lost.index(origin.rail) if origin.rail in lost else 0
                return None, own * (spec.domains - 1) + self._domains_on(origin, destination)

    def spine_for(self, destination: Gpu) -> int:
        """Index of the spine switch for packets to `destination` while no spine switch has failed.

        Destination domains take the spines in turn, starting at the seed. So any step in which
        each domain sends to one other loads all uplinks evenly, and with as many spines as domains
        no two flows of a step share a link; hashing achieves this only on average.
        """
        return (destination.domain + self.topology.spec.seed) % self.topology.spec.nic.spines

    def _displaced(self, here: OpenFlowSwitch, destination: Gpu) -> int:
        """Number the destinations whose own spine is lost, to deal them out to other spines.

        By rounds of the spines, then by the distance in rails, or leaf switches, from `here`.
        """
        spec = self.topology.spec
        spine_round = destination.domain // spec.nic.spines
        if spec.nic.leaves > 1:
            return spine_round + leaf_of_domain(spec, destination.domain) - here.index - 1
        rails = spec.domain_size
        rails_on = (destination.rail - (here.rail or 0) - 1) % rails
        return spine_round * (rails - 1) + rails_on


def _dealt(uplinks: Sequence[Hop], number: int) -> Iterator[Hop]:
    """Yield a packet's own uplink, then the others in its order, which no failure changes."""
    if uplinks:
        turn, own = divmod(number, len(uplinks))
        others = [*uplinks[own + 1 :], *uplinks[:own]]
        first = turn % max(1, len(others))
        yield from (uplinks[own], *others[first:], *others[:first])
