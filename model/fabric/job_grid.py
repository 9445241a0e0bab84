"""The grid of a job's GPUs: its slots by domain and rail, and the ranks of the GPUs there."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from model.arrays import Ints

# A place of a grid: the number of the domain, and the local rank there, which is the rail.
Slot = tuple[int, int]
Shape = tuple[int, int]
"""Domains, and slots in each."""


@dataclass(frozen=True)
class JobGrid:
    """Domains of `size` slots each, of which those that are `missing` hold no GPU.

    Ranks number the GPUs that are there, domain after domain. As many neighbours as `gpus_per_nic`
    share a NIC, whose link the first of them has. Of a part in which others share one, `sharing`
    has the number of each slot's NIC.
    """

    domains: int
    size: int
    missing: tuple[Slot, ...] = ()
    gpus_per_nic: int = 1
    sharing: tuple[int, ...] = ()

    @property
    def shape(self) -> Shape:
        """The number of domains, and of slots in each."""
        return self.domains, self.size

    @property
    def gpus(self) -> int:
        """The number of GPUs, and of ranks."""
        return self.domains * self.size - len(self.missing)

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """The slot of every rank."""
        missing = frozenset(self.missing)
        every = product(range(self.domains), range(self.size))
        return tuple(slot for slot in every if slot not in missing)

    @cached_property
    def places(self) -> "Ints":
        """The domain of every rank, and its rail: a row for each."""
        # Commands that only list scenarios or stored runs do without NumPy.
        import numpy as np

        return np.array(self.slots, np.int64).reshape(-1, 2).T

    @cached_property
    def rank_at(self) -> dict[Slot, int]:
        """The rank at every slot that holds a GPU."""
        return {slot: rank for rank, slot in enumerate(self.slots)}

    def nearest(self, domains: "Ints", rails: "Ints") -> "Ints":
        """Return the ranks at slots, or the next ones where GPUs are missing."""
        slots = self.places.T @ (self.size, 1)
        found = slots.searchsorted(domains * self.size + rails)
        return found % self.gpus

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of GPUs in each domain."""
        there = Counter(domain for domain, _ in self.slots)
        return tuple(there[domain] for domain in range(self.domains))

    @cached_property
    def holders(self) -> dict[Slot, Slot]:
        """For each GPU's slot, that of the GPU with its NIC: of those that share it, the first."""
        first: dict[Slot, Slot] = {}
        return {(d, r): first.setdefault((d, self._nic(r)), (d, r)) for d, r in self.slots}

    def _nic(self, rail: int) -> int:
        """Return the number of the NIC that the GPUs of a rail use."""
        return self.sharing[rail] if self.sharing else rail // self.gpus_per_nic

    @cached_property
    def shared_rails(self) -> tuple[tuple[int, ...], ...]:
        """For each NIC that every domain has, the local rank with its link, by domain."""
        by_nic = defaultdict[int, list[int]](list)
        for _, rail in dict.fromkeys(self.holders.values()):
            by_nic[self._nic(rail)].append(rail)
        return tuple(tuple(rails) for rails in by_nic.values() if len(rails) == self.domains)

    @property
    def nics(self) -> "Ints":
        """The domain of every rank, and the number of its NIC there: a row for each."""
        import numpy as np

        domains, rails = self.places
        return np.stack([domains, np.array(list(map(self._nic, range(self.size))))[rails]])

    def part(self, domains: range, rails: range) -> "JobGrid":
        """Return the grid of some consecutive domains and rails, counted from its own corner."""
        missing = tuple(
            (domain - domains.start, rail - rails.start)
            for domain, rail in self.missing
            if domain in domains and rail in rails
        )
        return self.among(len(domains), rails, missing)

    def among(
        self, domains: int, rails: Sequence[int], missing: tuple[Slot, ...] = ()
    ) -> "JobGrid":
        """Return a grid of GPUs of these rails, which share NICs as here."""
        numbers: dict[int, int] = {}
        sharing = tuple(numbers.setdefault(self._nic(rail), len(numbers)) for rail in rails)
        shared = sharing.count(0)
        if sharing == tuple(place // shared for place in range(len(rails))):
            return JobGrid(domains, len(rails), missing, shared)
        return JobGrid(domains, len(rails), missing, sharing=sharing)

    def __str__(self) -> str:
        """Domains and GPUs in each, in words: `4 x 8 GPUs`, or the sizes of unequal domains."""
        told = f"{self.domains} x {self.size} GPUs"
        if self.missing:
            told = f"{self.gpus} GPUs in domains of {', '.join(map(str, self.sizes))}"
        if self.sharing:
            return f"{told}, {1 + max(self.sharing)} NICs a domain"
        return told + (f", {self.gpus_per_nic} a NIC" if self.gpus_per_nic > 1 else "")
