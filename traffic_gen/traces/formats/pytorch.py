"""What PyTorch records of communication, a file for each rank, as nodes of a Chakra trace.

Kineto's traces and execution traces have calls of `ProcessGroupNCCL`, with the same attributes
(`torch/csrc/distributed/c10d/ParamCommsUtils.hpp`): elements of the input, and `rank`, the number
of the root or the peer in the process group. Kineto has the peer's own rank, too, as `dst_rank` or
`src_rank` (`saveNcclMeta` in `torch/csrc/profiler/util.cpp`).
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from model.workload.trace import Trace
from traffic_gen.traces.formats.chakra_json import COMM_TYPE_OF, FlatNodes
from traffic_gen.traces.formats.chakra_nodes import Source
from traffic_gen.traces.formats.chakra_trace import Assembly
from traffic_gen.traces.formats.json_items import Item, parsed
from traffic_gen.traces.formats.nodes import (
    MOST_BYTES,
    MOST_RANKS,
    Defaults,
    Malformed,
    of_file,
    require_nodes,
)

# Parts of names of calls that mean the same as those without, as in `_allgather_base`.
VARIANT = re.compile("into_tensor|tensor|base|oop|coalesced|[^a-z]")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
ALL_TO_ALL, ALL_TO_ALL_V = "alltoall", "alltoallv"
SEND, RECEIVES = "send", ("recv", "recvanysource")
MESSAGES = (SEND, *RECEIVES)
KNOWN = {*COMM_TYPE_OF, ALL_TO_ALL_V, *MESSAGES}
# Those whose output has the ranks' inputs, and those whose input has the ranks' outputs.
GROWING, SHRINKING = ("allgather", "gather"), ("reducescatter", "scatter")
# Bytes of an element of each `c10::ScalarType`.
SCALARS = {
    1: "byte char bool qint8 quint8 float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz "
    "float8_e8m0fnu",
    2: "short uint16 half bfloat16",
    4: "int uint32 float complexhalf qint32",
    8: "long uint64 double complexfloat",
    16: "complexdouble",
}
BYTES_OF = {name: size for size, names in SCALARS.items() for name in names.split()}
# Names of Chakra for nodes; one of metadata does nothing but wait.
COMPUTE, JUNCTION, COLLECTIVE = "CompNode", "MetadataNode", "CommCollNode"
SENDS, RECEIVES_FROM = "CommSendNode", "CommRecvNode"
OUTPUT = "out_msg_nelems of {} collective operations, which in_msg_nelems contradicts"
NO_SPLITS = "sizes by peer of {} calls of all_to_allv, which Kineto cuts off: equal ones"


@dataclass
class RankNodes:
    """Collects the nodes of a rank: `places` has the place of each in the file.

    `groups` has the ranks of process groups, `left_out` sentences about what has no node.
    """

    rank: int
    ranks: int
    nodes: list[dict[str, Any]] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    groups: dict[str, list[int]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)

    def add(self, item: Item, after: Iterable[int], type_: str, **fields: object) -> int:
        """Add a node that waits for others; return its number."""
        number, place = len(self.nodes), f": {item.place}"
        require_nodes(number + 1, place)
        self.nodes.append({"id": number, "type": type_, "datadeps": list(after), **fields})
        self.places.append(place)
        return number

    def joined(self, item: Item, nodes: Sequence[int]) -> list[int]:
        """Return one node, without an action, in place of several to wait for."""
        return list(nodes) if len(nodes) < 2 else [self.add(item, nodes, JUNCTION)]

    def call(self, item: Item, after: Sequence[int]) -> int:
        """Add the nodes of a call; return the one that ends it."""
        name = called(item)
        if name not in KNOWN:
            item.refuse(f"unknown communication {name[:40]!r}")
        group = str(item.of("pg_name").value) if item.has("pg_name") else ""
        ranks = self._ranks(item, group)
        dtype = str(item.of("dtype").value).lower()
        if dtype not in BYTES_OF:
            item.refuse(f"unknown dtype {dtype[:40]!r}")
        elements = item.number("in_msg_nelems", 0, MOST_BYTES)
        splits = [item.value.get(f"{end}_split_size") for end in ("in", "out")]
        has_splits = any(one not in (None, "", "[]", []) for one in splits)
        if name == ALL_TO_ALL and not has_splits and (sizes := _by_tensor(item, len(ranks))):
            by_tensor = {"in_split_size": sizes, "out_split_size": None}
            item, has_splits = Item({**item.value, **by_tensor}, item.place), True
        if name == ALL_TO_ALL_V or (name == ALL_TO_ALL and has_splits):
            return self._all_to_all_v(item, after, ranks, BYTES_OF[dtype])
        size = {"commsize": elements * BYTES_OF[dtype]}
        if name in COMM_TYPE_OF:
            output = elements * len(ranks) if name in GROWING else elements
            output //= len(ranks) if name in SHRINKING else 1
            self.left_out[OUTPUT] += output != item.number("out_msg_nelems", 0, MOST_BYTES, output)
            root = name in ROOTED and item.has("rank")
            of = {"commsrc": ranks[item.number("rank", 0, len(ranks) - 1)]} if root else {}
            return self.add(item, after, COLLECTIVE, commtype=name, pgname=group, **size, **of)
        if name == SEND:
            return self.add(item, after, SENDS, commdst=_peer(item, "dst_rank", ranks), **size)
        return self.add(item, after, RECEIVES_FROM, commsrc=_peer(item, "src_rank", ranks), **size)

    def _all_to_all_v(
        self, item: Item, after: Sequence[int], ranks: Sequence[int], element_bytes: int
    ) -> int:
        """Add a send to each other rank and a receive from each, with their shares."""
        sent, received = (_shares(item, end, len(ranks)) for end in ("in", "out"))
        if sent is None:
            self.left_out[NO_SPLITS] += 1
            sent = [item.number("in_msg_nelems", 0, MOST_BYTES) // len(ranks)] * len(ranks)
        ends = list[int]()
        for place, peer in enumerate(ranks):
            if peer != self.rank:
                size_bytes = sent[place] * element_bytes
                ends.append(self.add(item, after, SENDS, commdst=peer, commsize=size_bytes))
                room = {"commsize": received[place] * element_bytes} if received else {}
                ends.append(self.add(item, after, RECEIVES_FROM, commsrc=peer, **room))
        return self.add(item, ends, JUNCTION)

    def _ranks(self, item: Item, group: str) -> list[int]:
        """Return the ranks of a call's group: as listed, or by their first one and stride."""
        listed = _integers(item.value.get("ranks"))
        if group not in self.groups:
            count = item.number("pg_size", 1, MOST_RANKS)
            if not listed:
                begin, step = (0, 1) if count == self.ranks else (None, None)
                stride = item.number("global_rank_stride", 0, MOST_RANKS, step)
                first = item.number("global_rank_start", 0, MOST_RANKS, begin)
                listed = [first + stride * number for number in range(count)]
            self.groups[group] = listed
        ranks = self.groups[group]
        count = item.number("pg_size", 1, MOST_RANKS, len(ranks))
        if (listed or ranks) != ranks or count != len(ranks):
            found = f"the ranks {str(listed)[:40]}" if listed else f"{count} ranks"
            known = f"process group {group[:40]!r} has {str(ranks)[:40]}"
            item.refuse(f"names {found}, {known}", "leave one of the two out")
        if not 0 <= min(ranks) <= max(ranks) < self.ranks:
            hint = "put the files of all ranks, and no others, into a folder"
            item.refuse(f"has ranks up to {max(ranks)}, got {self.ranks} files", hint)
        return ranks

    def define(self, groups: object) -> None:
        """Note the ranks of all groups that PyTorch lists; without ranks, it has the first ones."""
        for one in groups if isinstance(groups, list) else ():
            ranks = _integers(one.get("ranks")) if isinstance(one, dict) else None
            if ranks is not None:
                item, name = Item(one, "process groups"), str(one.get("pg_name"))
                size = item.number("group_size", 1, MOST_RANKS, self.ranks)
                members = ranks or list(range(size))
                if self.groups.setdefault(name, members) != members:
                    item.refuse(f"process group {name!r} is defined twice, with other ranks")

    def end(self) -> None:
        """Add the node that lists all groups, as in Chakra."""
        known = [(name, ranks) for name, ranks in self.groups.items() if max(ranks) < self.ranks]
        listed = [{"pg_name": name, "ranks": ranks} for name, ranks in sorted(known)]
        inputs = {"values": str([json.dumps(listed)])}
        self.add(Item(None, "process groups"), (), JUNCTION, inputs=inputs)


def _peer(item: Item, key: str, ranks: Sequence[int]) -> int:
    """Return the rank at the other end of a message, one of its group."""
    if not item.has(key):
        return ranks[item.number("rank", 0, len(ranks) - 1)]
    peer = item.number(key, 0, MOST_RANKS)
    if peer not in ranks:
        item.of(key).refuse(f"must be in the process group, {str(ranks)[:40]}, got {peer}")
    return peer


def _by_tensor(item: Item, count: int) -> list[int]:
    """Return the elements of each tensor of a call's input, if it has one for each rank."""
    dims = item.value.get("input_dims")
    shapes = dims[0] if isinstance(dims, list) and dims and isinstance(dims[0], list) else []
    known = [shape for shape in map(_integers, shapes) if shape is not None]
    return [prod(shape) for shape in known] if len(known) == count else []


def _shares(item: Item, end: str, count: int) -> list[int] | None:
    """Return the elements that go to, or come from, each rank; nothing if they are cut off."""
    if end == "out" and not (item.has("out_split_size") and item.has("out_msg_nelems")):
        return None
    splits = _integers(item.of(f"{end}_split_size").value)
    if splits is None:
        return None
    total, shares = item.number(f"{end}_msg_nelems", 0, MOST_BYTES), splits or [1] * count
    if len(shares) != count or min(shares) < 0:
        item.refuse(f"needs a split for each of {count} ranks, got {len(shares)}")
    parts = sum(shares)
    if total % parts if parts else total:
        item.refuse(f"{end}_split_size cuts {total} elements into {parts} equal parts")
    return [total * share // max(1, parts) for share in shares]


def called(item: Item) -> str:
    """Return the name of a call, without what does not change its meaning."""
    return VARIANT.sub("", str(item.of("collective_name").value).lower())


def _integers(value: object) -> list[int] | None:
    """Return a list of integers, also from a text; nothing for one that is cut off."""
    if isinstance(value, str):
        value = decoded(value)
    listed = isinstance(value, list) and all(type(one) is int for one in value)
    return value if listed else None  # type: ignore[return-value]


def decoded(text: object) -> object:
    """Return what a text has as JSON; nothing if it is none."""
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None


def is_object_with(keys: Iterable[bytes], content: bytes) -> bool:
    """Whether a file has an object with all of these keys in it, in any order."""
    found = (re.search(rb'"(?:%s)"\s*:' % key, content) for key in keys)
    return re.match(rb"\s*\{", content) is not None and all(found)


def trace_of(
    form: str, read: Callable[[Item, int, int], RankNodes], files: Sequence[bytes], given: Defaults
) -> Trace:
    """Return the trace of all files, of which each is read with its number and that of all."""
    of_rank: dict[int, tuple[int, RankNodes]] = {}
    for file, content in enumerate(files):
        with of_file(file):
            nodes = read(parsed(content.decode(errors="replace")), file, len(files))
            if nodes.rank in of_rank:
                hint = "leave one file for each rank in the folder"
                raise Malformed(1, f"duplicate rank {nodes.rank}", hint)
        nodes.end()
        of_rank[nodes.rank] = file, nodes
    file_of, ordered = zip(*(of_rank[rank] for rank in range(len(files))), strict=True)
    flat = [node for nodes in ordered for node in nodes.nodes]
    places = [place for nodes in ordered for place in nodes.places]
    rank = np.repeat(np.arange(len(files)), [len(nodes.nodes) for nodes in ordered])
    source = Source(rank, lambda node: places[node], file_of)
    trace = Assembly(source, FlatNodes(source, flat).columns(), given).trace()
    left_out = sum((nodes.left_out for nodes in ordered), Counter[str]())
    said = tuple(what.format(count) for what, count in sorted(left_out.items()))
    return replace(trace, format=form, left_out=said + trace.left_out)
