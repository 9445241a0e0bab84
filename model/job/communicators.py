"""Communicators: the groups of ranks in which a collective takes place."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from model.fabric.job_grid import JobGrid

Asked = str | Sequence[str | Sequence[str]]
"""Words and names of GPUs, as a user writes them."""

EVERYONE = "all"
LONGEST_LABEL = 40
WORDS = "all, rails, rail0, domains, d0, strided-2, strided-2-from-1"


@dataclass(frozen=True)
class Communicator:
    """Ranks of a job in their order, and the grid that they form in it, numbered from 0.

    A grid has domain after domain, each with the same rails in the same order. Ranks that form none
    count as domains of one GPU each.
    """

    ranks: tuple[int, ...]
    grid: JobGrid

    def is_uneven(self, job: JobGrid) -> bool:
        """Whether ranks of the same domain are in a communicator that forms no grid."""
        domains = {job.slots[rank][0] for rank in self.ranks}
        return self.grid.shape == (len(self.ranks), 1) and len(domains) < len(self.ranks)

    def is_rail_isolated(self, job: JobGrid) -> bool:
        """Whether domains and rails of the communicator's own ranks join all of its ranks.

        If they do not, a rail-only fabric can serve it only by crossing rails in other GPUs.
        """
        groups: list[set[tuple[str, int]]] = []
        for domain, nic in job.nics[:, list(self.ranks)].T.tolist():
            ends = {("domain", domain), ("rail", nic)}
            joined = [group for group in groups if group & ends]
            groups = [group for group in groups if not group & ends]
            groups.append(ends.union(*joined))
        return len(groups) == 1


def communicators(asked: Asked, grid: JobGrid) -> tuple[Communicator, ...]:
    """Return all requested communicators on a grid of GPUs.

    A word names one or several communicators; a list of GPU names forms one; any other list joins
    those of its entries. Raises `ValueError` with a sentence.
    """
    if isinstance(asked, str):
        return tuple(_communicator(ranks, grid) for ranks in _of_word(asked, grid))
    if all(isinstance(entry, str) and _GPU.fullmatch(entry) for entry in asked):
        return (_communicator([_gpu(str(entry), grid) for entry in asked], grid),)
    return tuple(one for entry in asked for one in communicators(entry, grid))


def label(asked: Asked) -> str:
    """Return a short name for a requested communicator."""
    if isinstance(asked, str):
        return asked
    names = "+".join(entry if isinstance(entry, str) else ",".join(entry) for entry in asked)
    return names if len(names) <= LONGEST_LABEL else f"{len(asked)}-of-a-list"


_GPU = re.compile(r"d(\d{1,9})g(\d{1,9})")
# A communicator has one name: no zeros in front.
_NUMBER = r"(0|[1-9][0-9]{0,8})"
_PLACE = re.compile(f"(d|rail){_NUMBER}")
_STRIDED = re.compile(f"strided-{_NUMBER}(?:-from-{_NUMBER})?")


def _of_word(word: str, grid: JobGrid) -> list[list[int]]:
    """Return the ranks of every communicator that a word stands for."""
    if word == EVERYONE:
        return [list(range(grid.gpus))]
    by_place = {"d": _by_place(grid, 0, grid.domains), "rail": _by_place(grid, 1, grid.size)}
    if word in ("domains", "rails"):
        groups = by_place["d" if word == "domains" else "rail"]
        # One GPU that is left of a domain or a rail has nobody to send to.
        return [ranks for ranks in groups if len(ranks) > 1] or groups
    if matched := _PLACE.fullmatch(word):
        groups, number = by_place[matched[1]], int(matched[2])
        if number >= len(groups):
            raise ValueError(
                f"unknown communicator {word!r}; known: {matched[1]}0 to "
                f"{matched[1]}{len(groups) - 1}"
            )
        return [groups[number]]
    if matched := _STRIDED.fullmatch(word):
        return _strided(int(matched[1]), matched[2], grid.gpus)
    raise ValueError(f"unknown communicator {word!r}; known: {WORDS}, or a list of GPUs (d0g0)")


def _by_place(grid: JobGrid, which: int, count: int) -> list[list[int]]:
    """Return the ranks in each domain (`which` is 0), or on each rail (1)."""
    groups: list[list[int]] = [[] for _ in range(count)]
    for rank, slot in enumerate(grid.slots):
        groups[slot[which]].append(rank)
    return groups


def _strided(stride: int, first: str | None, gpus: int) -> list[list[int]]:
    """Return the groups of every `stride`-th rank, or the one that begins at a rank."""
    most = gpus // 2 if first is None else gpus - 1
    if not 1 <= stride <= most:
        raise ValueError(f"stride must be 1 to {most}, of {gpus} GPUs, got {stride}")
    if first is not None and int(first) >= stride:
        raise ValueError(f"first rank must be below the stride, {stride}, got {first}")
    begins = range(stride) if first is None else [int(first)]
    return [list(range(begin, gpus, stride)) for begin in begins]


def _gpu(name: str, grid: JobGrid) -> int:
    matched = _GPU.fullmatch(name)
    domain, rail = (int(part) for part in matched.groups()) if matched else grid.shape
    if (domain, rail) in grid.missing:
        raise ValueError(f"GPU {name!r} is missing from the fabric")
    if (domain, rail) not in grid.rank_at or name != f"d{domain}g{rail}":
        last = f"d{grid.domains - 1}g{grid.size - 1}"
        raise ValueError(f"unknown GPU {name!r}; known: d0g0 to {last}")
    return grid.rank_at[domain, rail]


def _communicator(ranks: Sequence[int], grid: JobGrid) -> Communicator:
    """Return a communicator of ranks in this order, and the grid that they form in it."""
    if len(ranks) < 2:
        raise ValueError(f"must have two GPUs or more, got {len(ranks)}")
    if twice := [rank for rank, count in Counter(ranks).items() if count > 1]:
        domain, rail = grid.slots[twice[0]]
        raise ValueError(f"duplicate GPU 'd{domain}g{rail}'")
    by_domain = [
        [grid.slots[rank][1] for rank in group]
        for _, group in groupby(ranks, key=lambda rank: grid.slots[rank][0])
    ]
    if all(rails == by_domain[0] for rails in by_domain):
        return Communicator(tuple(ranks), grid.among(len(by_domain), by_domain[0]))
    if list(ranks) == list(range(grid.gpus)):
        return Communicator(tuple(ranks), grid)
    return Communicator(tuple(ranks), JobGrid(len(ranks), 1))
