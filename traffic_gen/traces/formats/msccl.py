"""Algorithms in MSCCL's XML (microsoft/msccl-tools) as traces: steps of thread blocks of each GPU.

    <algo coll="allgather" ngpus="2" nchunksperloop="2">
      <gpu id="0" i_chunks="1" o_chunks="2" s_chunks="0">
        <tb id="0" send="1" recv="1" chan="0">
          <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1"
                depid="-1" deps="-1" hasdep="0"/>

The steps of a block follow each other, and a step its dependency in another block of its GPU. A
chunk has the collective's size divided by `nchunksperloop`; `i_chunks` and the others may count the
used part of a buffer alone, as msccl-tools writes them. An algorithm that does not do what its
collective asks is refused (`msccl_proof`).

The protocols LL and LL128 send flags with the data: 4 bytes with 4, 8 with 120
(src/include/device.h of NCCL). An algorithm is for sizes from `minBytes` to `maxBytes`.
"""

import re
from collections import Counter
from fractions import Fraction
from math import ceil
from typing import NoReturn
from xml.parsers import expat

from model.workload.trace import NodeKind, Trace
from traffic_gen.traces.formats.msccl_proof import Algorithm, Block, Location, Part, Step, prove
from traffic_gen.traces.formats.nodes import (
    Defaults,
    Malformed,
    Node,
    Nodes,
    require_bytes,
    require_nodes,
)

FORMAT = "MSCCL XML"
NUMBER = re.compile(r"-?[0-9]{1,18}")
RECEIVES, SENDS = ("r", "rcs", "rrs", "rrc", "rrcs"), ("s", "rcs", "rrs", "rrcs")
TYPES = (*RECEIVES, "s", "cpy", "re", "nop")
MOST_CHUNKS = 2**20
# The proof has a bit for each GPU in each chunk; a fabric has at most 4096. MSCCL's interpreter
# has 32 channels of 32 blocks.
MOST_GPUS, MOST_BLOCKS = 4096, 1024
KNOWN = {
    "algo": "name coll proto ngpus nchannels nchunksperloop inplace outofplace redop "
    "minBytes maxBytes",
    "gpu": "id i_chunks o_chunks s_chunks",
    "tb": "id send recv chan",
    "step": "s type srcbuf srcoff dstbuf dstoff cnt depid deps hasdep",
}
ATTRIBUTES = {element: set(known.split()) for element, known in KNOWN.items()}
LEVELS = tuple(KNOWN)
# Bytes that each protocol sends for a byte of data.
PROTOCOLS = {"Simple": Fraction(1), "LL": Fraction(2), "LL128": Fraction(128, 120)}
Attributes = dict[str, str]


def is_msccl(text: str) -> bool:
    """Whether a text begins as XML, or has an algorithm in it."""
    return text.lstrip().startswith("<") or "<algo" in text[:65536]


def read_msccl(text: str, defaults: Defaults) -> Trace:
    """Read an algorithm for a collective of some size; raise `Malformed` for any other text."""
    reader = _Reader(expat.ParserCreate())
    try:
        reader.parser.Parse(text, True)
    except expat.ExpatError as error:
        # msccl-tools' programs print the result of their own check behind the algorithm.
        if error.code != expat.errors.codes[expat.errors.XML_ERROR_JUNK_AFTER_DOC_ELEMENT]:
            what = f"is not XML: {expat.errors.messages[error.code]}"
            raise Malformed(error.lineno, what) from None
        reader.leave_out(text, error.lineno)
    algorithm = reader.algorithm
    if algorithm is None:
        raise Malformed(1, "needs an algorithm")
    return _trace(algorithm, reader, defaults)


class _Reader:
    """Builds an algorithm from the elements of the XML, in their order."""

    def __init__(self, parser: expat.XMLParserType) -> None:
        self.parser = parser
        self.algorithm: Algorithm | None = None
        self.gpu = 0
        self.block: Block | None = None
        self.open: list[str] = []
        self.sent_for_a_byte = PROTOCOLS["Simple"]
        self.sizes = 0, 0
        # The number of chunks that steps touch.
        self.chunks = 0
        self.left_out: list[str] = []
        self.unknown: Counter[str] = Counter()
        # The block that sends to, or receives from, each peer of a GPU on a channel.
        self.users: dict[tuple[str, int, int, int], int] = {}
        parser.StartElementHandler = self._begin
        parser.EndElementHandler = lambda _name: self.open.pop()
        parser.StartDoctypeDeclHandler = lambda *_: self._refuse("has a DOCTYPE", "leave it out")

    def leave_out(self, text: str, place: int) -> None:
        """Leave out the text behind the algorithm; raise `Malformed` for a second algorithm."""
        if b"<algo" in text.encode()[self.parser.ErrorByteIndex :]:
            raise Malformed(place, "has a second algorithm", "keep one in the file")
        self.left_out.append(f"text behind the algorithm, from line {place} on")

    def _refuse(self, what: str, hint: str = "") -> NoReturn:
        raise Malformed(self.parser.CurrentLineNumber, what, hint)

    def _begin(self, name: str, given: Attributes) -> None:
        if len(self.open) == len(LEVELS) or name != LEVELS[len(self.open)]:
            inside = self.open[-1] if self.open else "the file"
            self._refuse(f"unknown element <{name[:40]}> in {inside}")
        self.open.append(name)
        self.unknown.update(f"{key[:40]!r} of <{name}>" for key in given.keys() - ATTRIBUTES[name])
        if name == "algo":
            self._algorithm(given)
        elif name == "step":
            self._step(given)
        elif self.algorithm is not None:
            {"gpu": self._gpu, "tb": self._block}[name](given, self.algorithm)

    def _number(self, given: Attributes, key: str, least: int, most: int, default: str = "") -> int:
        """Return an attribute that is a number within bounds."""
        text = given.get(key, default)
        if NUMBER.fullmatch(text) and least <= (number := int(text)) <= most:
            return number
        self._refuse(f"{key} must be {least} to {most}, got {text[:40]!r}")

    def _algorithm(self, given: Attributes) -> None:
        place = self.parser.CurrentLineNumber
        protocol = given.get("proto", "Simple")
        if protocol not in PROTOCOLS:
            self._refuse(f"unknown proto {protocol[:40]!r}", f"known: {', '.join(PROTOCOLS)}")
        self.sent_for_a_byte = PROTOCOLS[protocol]
        least, most = (self._number(given, f"{end}Bytes", 0, 2**62, "0") for end in ("min", "max"))
        self.sizes = least, most
        self.algorithm = Algorithm(
            place_in_file=place,
            collective=given.get("coll", "").replace("_", ""),
            ranks=self._number(given, "ngpus", 1, MOST_GPUS),
            chunks=self._number(given, "nchunksperloop", 1, MOST_CHUNKS),
            in_place=self._number(given, "inplace", 0, 1, "0") == 1,
        )

    def _gpu(self, given: Attributes, algorithm: Algorithm) -> None:
        self.gpu = self._number(given, "id", 0, algorithm.ranks - 1)
        if self.gpu in algorithm.buffers:
            self._refuse(f"duplicate GPU {self.gpu}")
        algorithm.buffers[self.gpu] = {
            name: self._number(given, f"{name}_chunks", 0, MOST_CHUNKS) for name in "ios"
        }

    def _block(self, given: Attributes, algorithm: Algorithm) -> None:
        send, receive = (self._number(given, k, -1, algorithm.ranks - 1) for k in ("send", "recv"))
        channel = self._number(given, "chan", 0, 2**16)
        number = self._number(given, "id", 0, MOST_BLOCKS - 1)
        if (self.gpu, number) in algorithm.blocks:
            self._refuse(f"duplicate block {number} of GPU {self.gpu}")
        for end, peer in (("sends to", send), ("receives from", receive)):
            other = self.users.setdefault((end, self.gpu, peer, channel), number)
            if peer >= 0 and other != number:
                what = f"{end} GPU {peer} on channel {channel}, as block {other} does"
                self._refuse(what, "give each a channel of its own")
        self.block = Block(send, receive, channel)
        algorithm.blocks[self.gpu, number] = self.block

    def _step(self, given: Attributes) -> None:
        block, type_ = self.block, given.get("type", "")
        if block is None or type_ not in TYPES:
            self._refuse(f"unknown step type {type_[:40]!r}", f"known: {', '.join(TYPES)}")
        if (type_ in SENDS and block.send < 0) or (type_ in RECEIVES and block.receive < 0):
            self._refuse(f"step {type_!r} needs a peer of its block")
        if self._number(given, "s", 0, 10**9) != len(block.steps):
            self._refuse(f"must be step {len(block.steps)} of its block, got {given['s']}")
        step = Step(
            place=self.parser.CurrentLineNumber,
            type=type_,
            source=self._location(given, "src"),
            target=self._location(given, "dst"),
            count=self._number(given, "cnt", 0 if type_ == "nop" else 1, MOST_CHUNKS),
            block=self._number(given, "depid", -1, MOST_BLOCKS - 1, "-1"),
            step=self._number(given, "deps", -1, 10**9, "-1"),
        )
        if step.block < 0 <= step.step:
            self._refuse(f"deps {step.step} without depid", "name the block that it is a step of")
        self.chunks += max(2, step.count)
        require_nodes(self.chunks, step.place)
        block.steps.append(step)

    def _location(self, given: Attributes, end: str) -> Location:
        name = given.get(f"{end}buf", "i")
        if name not in ("i", "o", "s"):
            self._refuse(f"{end}buf must be 'i', 'o' or 's', got {name[:40]!r}")
        return name, self._number(given, f"{end}off", -1, MOST_CHUNKS)


def _trace(algorithm: Algorithm, reader: _Reader, defaults: Defaults) -> Trace:
    """Turn steps into nodes, and prove that they do the work of the collective."""
    where, (least, most) = algorithm.place_in_file, reader.sizes
    if defaults.size_bytes is None:
        raise Malformed(where, "needs a size", "add `size` to the workload")
    if not least <= defaults.size_bytes <= (most or defaults.size_bytes):
        sizes = f"{least} to {most} bytes (minBytes, maxBytes)" if most else f"{least} bytes on"
        raise Malformed(where, f"is for sizes from {sizes}, got {defaults.size_bytes}")
    if len(algorithm.buffers) != algorithm.ranks:
        what = f"must have {algorithm.ranks} GPUs (ngpus), got {len(algorithm.buffers)}"
        raise Malformed(where, what)
    chunk_bytes = require_bytes(max(1, -(-defaults.size_bytes // algorithm.chunks)), where)
    sent_bytes = chunk_bytes * reader.sent_for_a_byte
    unknown = [f"attribute {what}, {count} times" for what, count in sorted(reader.unknown.items())]
    nodes, parts = Nodes(algorithm.ranks, left_out=reader.left_out + unknown), list[Part]()
    ends: dict[tuple[int, int, int], int] = {}
    for (gpu, number), block in algorithm.blocks.items():
        first = len(parts)
        for index, step in enumerate(block.steps):
            for kind in _kinds(step):
                node = nodes.add(_node(kind, gpu, block, step, sent_bytes))
                if node > first:
                    nodes.wait(node, node - 1)
                parts.append(Part(gpu, number, index, step, kind))
            ends[gpu, number, index] = len(parts) - 1
    _wait(algorithm, nodes, ends)
    if algorithm.is_custom:
        nodes.left_out.append("check of the result, which a custom collective does not name")
    trace = nodes.trace(FORMAT)
    prove(algorithm, trace, parts)
    return trace


def _kinds(step: Step) -> list[NodeKind]:
    """Return the kinds of the nodes of a step."""
    receives, sends = step.type in RECEIVES, step.type in SENDS
    kinds = [NodeKind.RECEIVE] * receives + [NodeKind.SEND] * sends
    return kinds or [NodeKind.COMPUTE]


def _node(kind: NodeKind, gpu: int, block: Block, step: Step, chunk_bytes: Fraction) -> Node:
    if kind is NodeKind.COMPUTE:
        return Node(kind, gpu, step.place)
    if kind is NodeKind.RECEIVE:
        return Node(kind, gpu, step.place, block.receive, tag=block.channel)
    size_bytes = require_bytes(ceil(step.count * chunk_bytes), step.place)
    return Node(kind, gpu, step.place, block.send, size_bytes, block.channel)


def _wait(algorithm: Algorithm, nodes: Nodes, ends: dict[tuple[int, int, int], int]) -> None:
    """Let each step wait for its dependency in another block."""
    for (gpu, number), block in algorithm.blocks.items():
        for index, step in enumerate(block.steps):
            if step.block < 0:
                continue
            earlier = ends.get((gpu, step.block, step.step))
            if earlier is None:
                what = f"depends on unknown step {step.step} of block {step.block}"
                raise Malformed(step.place, what)
            nodes.wait(ends[gpu, number, index] - len(_kinds(step)) + 1, earlier)
