"""Chakra execution traces as JSON, a file for each rank, in each form that is in use.

MLCommons' `chakra_jsonizer` writes objects one after the other, metadata and nodes, in protobuf's
mapping to JSON; its feeder reads one object with a `workload_graph`, and the symbolic tensor graph
writes one with `nodes`. A list of objects is read, too. Names count without case and underscores:
`data_deps` is `dataDeps`.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from model.workload.trace import Trace
from model.workload.transfers.columns import Rows, starts_of
from traffic_gen.traces.formats.chakra_nodes import (
    GROUPS,
    METADATA,
    MISSING,
    NUMBERS,
    ORIGINS,
    TEXTS,
    NodeColumns,
    Source,
)
from traffic_gen.traces.formats.chakra_trace import Assembly
from traffic_gen.traces.formats.chakra_writing import COMM_TYPES
from traffic_gen.traces.formats.json_items import MOST_JSON_BYTES, values_in, whole
from traffic_gen.traces.formats.nodes import Defaults, Malformed, of_file, require_nodes

METADATA_FIRST = re.compile(
    rb'\s*\{\s*(?:"version"\s*:\s*"[^"]*"\s*(?:\}|,\s*"attr")|"attr"|\}\s*\{)'
)
NODES_INSIDE = re.compile(
    rb'"(?:(?:workload_graph|nodes|node_?type|(?:data|ctrl)_?deps)"\s*:|COM[MP]_(?:\w+_)?NODE"'
    rb'|comm_(?:type|size)")',
    re.IGNORECASE,
)
TYPES = ["invalid", "metadata", "memload", "memstore", "comp", "commsend", "commrecv", "commcoll"]
TYPE_OF = {f"{name}node": number for number, name in enumerate(TYPES)} | {"collcommnode": 7}
COMM_TYPE_OF = {name.lower(): number for number, name in enumerate(COMM_TYPES)}
NAMES: dict[str, dict[str, int]] = {"type": TYPE_OF, "comm_type": COMM_TYPE_OF}


def is_chakra_json(content: bytes) -> bool:
    """Whether a file is a Chakra execution trace in JSON."""
    if re.match(rb"\s*[\[{]", content) is None:
        return False
    return bool(METADATA_FIRST.match(content) or NODES_INSIDE.search(content, 0, MOST_JSON_BYTES))


def read_chakra_json(files: Sequence[bytes], given: Defaults) -> Trace:
    """Read a trace from the files of all ranks; raise `Malformed` for any other content."""
    if sum(map(len, files)) > MOST_JSON_BYTES:
        raise Malformed("", f"files in JSON must have at most {MOST_JSON_BYTES} bytes together")
    nodes, counts, others = list[dict[str, Any]](), list[int](), list[object]()
    for file, content in enumerate(files):
        with of_file(file):
            listed, gpus = _nodes_in(content)
            nodes += listed
            others += [gpus] * (gpus not in (None, len(files), str(len(files))))
            counts.append(len(listed))
            require_nodes(len(nodes), ": node 0")
    rank, first = np.repeat(np.arange(len(files)), counts), starts_of(counts)
    source = Source(rank, lambda node: f": node {node - first[rank[node]]}", range(len(files)))
    flat = [_flat(node, source, number) for number, node in enumerate(nodes)]
    trace = Assembly(source, FlatNodes(source, flat).columns(), given).trace()
    said = tuple(
        f"ngpus {str(gpus)[:40]}: the files are of {len(files)} ranks" for gpus in others[:1]
    )
    return replace(trace, left_out=(*said, *trace.left_out))


def _nodes_in(content: bytes) -> tuple[list[dict[str, Any]], object]:
    """Return the nodes of a file, and its number of GPUs, if it names one."""
    values = values_in(content.decode(errors="replace"))
    if len(values) == 1 and isinstance(values[0], list):
        (values,) = values
    objects = _only_objects(values)
    first = {_plain(key): value for key, value in objects[0].items()} if objects else {}
    inside = first.get("workloadgraph", first.get("nodes"))
    if inside is None:
        return objects if "type" in first else objects[1:], None
    if len(objects) > 1:
        raise Malformed(1, "nothing may follow the object that has all nodes")
    return _only_objects(inside), first.get("ngpus")


def _only_objects(values: object) -> list[dict[str, Any]]:
    if not isinstance(values, list) or not all(isinstance(one, dict) for one in values):
        raise Malformed(1, "nodes of a Chakra trace must be objects")
    return values


def _plain(name: object) -> str:
    plain = str(name).replace("_", "").lower()
    return "type" if plain == "nodetype" else plain


def _flat(node: dict[str, Any], source: Source, number: int) -> dict[str, Any]:
    """Return the fields and attributes of a node, all that is read by its plain name, once."""
    fields, flat = dict(node), dict[str, Any]()
    attributes = [] if (listed := fields.pop("attr", None)) is None else listed
    if not isinstance(attributes, list) or not all(isinstance(one, dict) for one in attributes):
        raise source.at(number, "attr must be a list of objects")
    named = list[tuple[object, Any]](fields.items())
    for one in attributes:
        values = [one[key] for key in one if _plain(key) not in ("name", "docstring")]
        named.append((one.get("name"), values[0] if values else None))
    for name, value in named:
        plain = _plain(name)
        # In protobuf's mapping to JSON, null is a field that is not set.
        if value is None:
            continue
        if plain in READ and flat.get(plain, value) != value:
            raise source.at(number, f"duplicate {name} of a node; leave one of them out")
        flat[plain if plain in READ else str(name)] = value
    return flat


TRUTHS, TIMES = ("is_cpu_op", "involved_dim"), ("duration_micros", "runtime")
FIELDS = ("id", "type", "duration_micros", "data_deps", "ctrl_deps", "inputs")
READ = set(map(_plain, (*FIELDS, *NUMBERS, *TEXTS)))
# Of which only the place in the program follows.
UNTOLD = {*READ, *map(_plain, ORIGINS), "name"}


def _inside(value: Any) -> Any:
    """Return a list, which may be inside of an object, as those of protobuf are."""
    return value.get("values", []) if isinstance(value, dict) else value


class FlatNodes:
    """Nodes whose fields and attributes have plain names."""

    def __init__(self, source: Source, nodes: Sequence[dict[str, Any]]) -> None:
        self.source, self.nodes = source, nodes

    def columns(self) -> NodeColumns:
        """Return the columns; raise `Malformed` for a value of another kind."""
        types, numbered = self._numbers("type", 0), list(enumerate(self.nodes))
        types[[n for n, node in numbered if node.get("name") == GROUPS]] = METADATA
        return NodeColumns(
            id=self._numbers("id", 0),
            type=types,
            duration_micros=self._numbers("duration_micros", 0),
            data=Rows.of([self._list(n, "data_deps") for n, _ in numbered]),
            control=Rows.of([self._list(n, "ctrl_deps") for n, _ in numbered]),
            **{name: self._numbers(name, MISSING) for name in NUMBERS},
            group={n: str(node["pgname"]) for n, node in numbered if "pgname" in node},
            involved={
                n: tuple(map(bool, self._list(n, "involved_dim")))
                for n, node in numbered
                if "involveddim" in node
            },
            inputs={
                n: str(_inside(node.get("inputs"))) for n, node in numbered if types[n] == METADATA
            },
            unread=Counter(
                name
                for n, node in numbered
                if types[n] != METADATA
                for name, value in node.items()
                if value and _plain(name) not in UNTOLD
            ),
        )

    def _numbers(self, name: str, missing: int) -> Any:
        """Return the number of this name for each node."""
        key = _plain(name)
        values = [
            self._number(n, name, node[key]) if key in node else missing
            for n, node in enumerate(self.nodes)
        ]
        return np.array(values, float if name in TIMES else np.int64)

    def _number(self, node: int, name: str, value: object) -> Any:
        """Return an integer: a number, its digits, or the name of one in an enumeration.

        Times may have fractions.
        """
        if name in TIMES and isinstance(value, float) and abs(value) < 2**63:
            return value
        if isinstance(value, str) and name in NAMES:
            value = NAMES[name].get(_plain(value), value)
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,20}", value):
            value = int(value)
        value = whole(value)
        is_right = value in (0, 1) if name in TRUTHS else not isinstance(value, bool)
        if not isinstance(value, int) or not is_right or not MISSING < value < 2**63:
            kind = "0 or 1" if name in TRUTHS else "a whole number of 64 bits with a sign"
            what = f"{name} must be {kind}, got {str(value)[:40]!r}"
            hint = f"known names: {', '.join(NAMES[name])}" if name in NAMES else ""
            raise self.source.at(node, what, "round it" if isinstance(value, float) else hint)
        return int(value)

    def _list(self, node: int, name: str) -> list[int]:
        listed = _inside(self.nodes[node].get(_plain(name), []))
        if not isinstance(listed, list):
            raise self.source.at(node, f"{name} must be a list")
        return [self._number(node, name, one) for one in listed]
