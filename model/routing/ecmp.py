"""Which of several ways that are equally near: spread evenly, never by chance.

Whatever the health of a fabric: that has decided which ways there are.
"""

from dataclasses import dataclass

from model.fabric.topology import Gpu, Hop, NodeKind, OpenFlowSwitch, Topology, leaf_of_domain

# One link into the HB domain's switch and one out of it, or a single link.
Step = tuple[Hop, ...]

# GPUs of a domain by whose NIC a packet leaves it, by local rank; or its destination there.
Exits = tuple[int, ...]


@dataclass(frozen=True)
class Ports:
    """The steps of a switch that lead equally near, in a fixed order.

    `spines` are the numbers of the spine switches that they lead to, -1 for other nodes. What is
    detoured may be spread by its origin: it is all for one GPU, whose address alone would keep it
    together on one link.
    """

    steps: tuple[Step, ...]
    spines: tuple[int, ...]
    by_origin: bool = False

    def without(self, place: int) -> "Ports":
        """The others, when the link of one has failed."""
        steps, spines = self.steps, self.spines
        return Ports(
            steps[:place] + steps[place + 1 :],
            spines[:place] + spines[place + 1 :],
            self.by_origin,
        )


class EcmpSelection:
    """Chooses among the ways that a GPU or a switch has."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def exit(self, gpu: Gpu, destination: Gpu, exits: Exits) -> int | None:
        """Among exits as good as each other: all detours of a domain, dealt out one by one."""
        if len(exits) < 2:
            return exits[0] if exits else None
        lost = [rail for rail in range(self._topology.spec.domain_size) if rail not in exits]
        own, wanted = (lost.index(r) if r in lost else 0 for r in (gpu.rail, destination.rail))
        dealt = (self._domains_on(gpu, destination) * len(lost) + own) * len(lost) + wanted
        return exits[dealt % len(exits)]

    def _domains_on(self, gpu: Gpu, destination: Gpu) -> int:
        """How many domains further the destination is, from 0."""
        return (destination.domain - gpu.domain - 1) % self._topology.spec.domains

    def port(self, switch: str, destination: Gpu, ports: Ports, came_from: str = "") -> Step | None:
        """One of these ports, if there are any."""
        if not ports.steps:
            return None
        return ports.steps[self._place(switch, destination, ports, came_from)]

    def backup(
        self, switch: str, destination: Gpu, ports: Ports, came_from: str = ""
    ) -> Step | None:
        """The port for when the link of the chosen one has just failed, if one is as near."""
        if len(ports.steps) < 2:
            return None
        others = ports.without(self._place(switch, destination, ports, came_from))
        return self.port(switch, destination, others, came_from)

    def _place(self, switch: str, destination: Gpu, ports: Ports, came_from: str) -> int:
        """The destination's own spine switch, or else the others in turn."""
        here = self._topology.switch_by_name[switch]
        if len(ports.steps) < 2:
            return 0
        if here.kind is NodeKind.SPINE_SWITCH:
            turn = here.index + destination.domain + destination.rail
        elif ports.by_origin and came_from in self._topology.gpu_by_name:
            turn = self._domains_on(self._topology.gpu_by_name[came_from], destination)
        elif (own := self.spine_for(destination)) in ports.spines:
            return ports.spines.index(own)
        else:
            turn = self._displaced(here, destination)
        return turn % len(ports.steps)

    def spine_for(self, destination: Gpu) -> int:
        """The number of the spine that carries what is for `destination` when all are well.

        The destinations' domains take the spines in turn, from the one that the seed says. So any
        step in which each domain sends to one other loads all uplinks evenly, and with as many
        spines as domains no two flows of a step share a link: what hashing promises only on
        average.
        """
        return (destination.domain + self._topology.spec.seed) % self._topology.spec.spines

    def _displaced(self, here: OpenFlowSwitch, destination: Gpu) -> int:
        """Deals out the destinations whose own spine is lost.

        By turns of the spines, then by how many rails, or leaf switches, further they are.
        """
        spec = self._topology.spec
        turn = destination.domain // spec.spines
        if spec.rail_leaves > 1:
            return turn + leaf_of_domain(spec, destination.domain) - here.index - 1
        rails = spec.domain_size
        rails_on = (destination.rail - (here.rail or 0) - 1) % rails
        return turn * (rails - 1) + rails_on
