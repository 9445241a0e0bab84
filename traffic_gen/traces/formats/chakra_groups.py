"""The groups of collective operations in Chakra execution traces.

A node names a process group (`pg_name`, or `comm_group`), or says which dimensions of the network
its group has (`involved_dim`). The ranks of a process group are those that a metadata node of the
same file lists for it, as PyTorch records them, or else all that name it. Names are of one file:
two ranks may mean different groups by one name. A process group of some ranks overrules dimensions
beside it, as in ASTRA-sim: those are of a network that may have another shape.
"""

import ast
import json
from collections import Counter, defaultdict
from itertools import product

from model.arrays import Ints
from model.sentences import counted
from traffic_gen.traces.formats.chakra_nodes import ALL_FILES, MISSING, NodeColumns, Source

Ranks = tuple[int, ...]
Call = tuple[int, str, tuple[bool, ...]]
"""A rank, the name of its process group, and the dimensions beside it."""
Group = tuple[str, Ranks]
"""A group, equal in all files of its ranks; a name tells groups of the same ranks apart."""


class Groups:
    """Finds the group of each collective operation; raises `Malformed` for one that cannot be."""

    def __init__(self, source: Source, columns: NodeColumns, domain_size: int) -> None:
        self.columns, self.rank, self.at = columns, source.rank, source.at
        self.everyone, self.domain_size = tuple(range(len(source.file_of))), domain_size
        self.defined: dict[int, dict[str, Ranks]] = defaultdict(dict)
        for node, inputs in columns.inputs.items():
            self._define(node, inputs)
        # The calls of process groups that do not have the ranks of the dimensions beside them.
        self.overruled: Counter[Call] = Counter()
        # The ranks that name each group, in order.
        self.naming: dict[str, dict[int, None]] = defaultdict(dict)

    def calls(self, nodes: Ints) -> dict[Group, dict[int, list[int]]]:
        """Return the operations of each group, by rank, in the order of the file."""
        calls: dict[Group, dict[int, list[int]]] = {}
        known: dict[Call, dict[int, list[int]]] = {}
        numbered = zip(self.rank[nodes].tolist(), nodes.tolist(), strict=True)
        named = [(rank, self.name(node), node) for rank, node in numbered]
        for rank, name, _ in named:
            if name not in self.defined[rank]:
                self.naming[name][rank] = None
        for rank, name, node in named:
            key = rank, name, self.columns.involved.get(node, ())
            if key not in known:
                group = self._group(node, *key)
                known[key] = calls.setdefault(group, {member: [] for member in group[1]})
            known[key][rank].append(node)
            if key in self.overruled:
                self.overruled[key] += 1
        return calls

    def name(self, node: int) -> str:
        """Return the name or number of a node's process group, which is empty without one."""
        name, number = self.columns.group.get(node, ""), int(self.columns.comm_group[node])
        if number == MISSING or name == str(number):
            return name
        if name:
            what = f"pg_name {name!r} and comm_group {number} name two groups"
            raise self.at(node, f"{what}; leave one of them out")
        return str(number)

    def _group(self, node: int, rank: int, name: str, involved: tuple[bool, ...]) -> Group:
        """Return a group: the process group, of whose dimensions some may be involved."""
        group = self._process_group(node, rank, name)
        if not involved and node in self.columns.involved:
            raise self.at(node, "involved_dim is empty; leave it out for all ranks")
        if all(involved[:2]):
            return group
        along = self._along(rank, involved)
        if len(group[1]) < len(self.everyone):
            if set(along) != set(group[1]):
                self.overruled[rank, name, involved] = 0
            return group
        if not along:
            count = counted(len(involved), "dimension")
            what = f"involved_dim has {count} for {len(self.everyone)} ranks"
            needs = "a network has two: the ranks of a domain, and the domains"
            if self.domain_size and len(involved) > 1:
                needs = f"its ranks must be a multiple of domain_size, {self.domain_size}"
            raise self.at(node, f"{what}; {needs}")
        return "", along

    def _process_group(self, node: int, rank: int, name: str) -> Group:
        of_file = self.defined[rank]
        if not name:
            return "", self.everyone
        if name not in of_file:
            return name, tuple(self.naming[name])
        members = of_file[name]
        if rank not in members:
            raise self.at(node, f"process group {name!r} does not have rank {rank}")
        same = [other for other, ranks in of_file.items() if ranks == members]
        return f"process group {same.index(name)}", members

    def _along(self, rank: int, involved: tuple[bool, ...]) -> Ranks:
        """Return the ranks that differ in the involved dimensions of the network alone.

        The first dimension is as many ranks in a row as a domain has GPUs, the second such rows;
        others have one. A placement does not change them.
        Return no ranks for dimensions that the network does not have.
        """
        size, count = self.domain_size, len(self.everyone)
        if not size or count % size or len(involved) < 2:
            return ()
        domain, place = divmod(rank, size)
        places = range(size) if involved[0] else (place,)
        domains = range(count // size) if involved[1] else (domain,)
        return tuple(first * size + second for first, second in product(domains, places))

    def _define(self, node: int, inputs: str) -> None:
        """Note the ranks of each process group that a metadata node lists.

        No ranks mean the first `group_size` ones, which are all in PyTorch, or else all.
        """
        if "pg_name" not in inputs:
            return
        count, of_file = len(self.everyone), self.defined[int(self.rank[node])]
        try:
            # Groups, or one text, which has them as JSON.
            groups = ast.literal_eval(inputs)
            listed = [
                (
                    str(one["pg_name"]),
                    # One rank too many is refused.
                    tuple(map(int, one["ranks"]))
                    or tuple(range(min(int(one.get("group_size") or count), count + 1))),
                )
                for one in (json.loads(groups[0]) if isinstance(groups[0], str) else groups)
            ]
        except (
            *(ValueError, ArithmeticError, TypeError, LookupError),
            *(SyntaxError, RecursionError, MemoryError),
        ):
            raise self.at(node, "process groups must be a list with pg_name and ranks") from None
        for name, ranks in listed:
            if of_file.setdefault(name, ranks) != ranks:
                raise self.at(node, f"process group {name!r} is defined twice, with other ranks")
            if not set(ranks) <= set(self.everyone) or len(set(ranks)) < len(ranks):
                what = f"process group {name!r} must have some of the ranks 0 to {count - 1}"
                raise self.at(node, f"{what}, each once", ALL_FILES)
