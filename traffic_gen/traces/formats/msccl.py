"""Algorithms in MSCCL's XML (microsoft/msccl-tools) as traces: steps of thread blocks of each GPU.

    <algo coll="allgather" ngpus="2" nchunksperloop="2">
      <gpu id="0" i_chunks="1" o_chunks="2" s_chunks="0">
        <tb id="0" send="1" recv="1" chan="0">
          <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1"
                depid="-1" deps="-1" hasdep="0"/>

The steps of a block follow each other, and a step its dependency in another block of its GPU. A
chunk has the collective's size divided by `nchunksperloop`; `i_chunks` and the others may count the
used part of a buffer alone, as msccl-tools writes them. An algorithm that does not do what its
collective asks is refused (`msccl_proof`): of two steps of a GPU that touch the same place, one of
them writing, its blocks and their dependencies must tell the order.

The protocols LL and LL128 send flags with the data: 4 bytes with 4, 8 with 120
(src/include/device.h of NCCL). An algorithm is for sizes from `minBytes` to `maxBytes`.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from math import ceil
from typing import NoReturn
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from model.sentences import counted
from model.workload.trace import Action, Trace
from traffic_gen.traces.formats.msccl_proof import (
    CUSTOM,
    CUT,
    RESULTS,
    Algorithm,
    Cells,
    Memory,
    Value,
)
from traffic_gen.traces.formats.nodes import (
    GIVE_SIZE,
    Defaults,
    Malformed,
    Node,
    Nodes,
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
# Limit of steps times blocks of their GPU, which take a gigabyte.
MOST_ENDS = 2**28
# The attributes of each element, from the outer one on.
KNOWN = {
    "algo": "name coll proto ngpus nchannels nchunksperloop inplace outofplace redop "
    "minBytes maxBytes",
    "gpu": "id i_chunks o_chunks s_chunks",
    "tb": "id send recv chan",
    "step": "s type srcbuf srcoff dstbuf dstoff cnt depid deps hasdep",
}
LEVELS = tuple(KNOWN)
# Bytes that each protocol sends for a byte of data.
PROTOCOLS = {"Simple": Fraction(1), "LL": Fraction(2), "LL128": Fraction(128, 120)}
Attributes = dict[str, str]
Key = tuple[int, int, int]
"""A GPU, the number of a thread block of it, and that of a step of the block."""


def is_msccl(text: str) -> bool:
    """Whether a text begins as XML, or has an algorithm in it."""
    return text.lstrip().startswith("<") or "<algo" in text[:65536]


def read_msccl(text: str, defaults: Defaults) -> Trace:
    """Read an algorithm for a collective of some size; raise `Malformed` for any other text."""
    reader = _Reader(defaults)
    try:
        reader.parser.Parse(text, True)
    except expat.ExpatError as error:
        # msccl-tools' programs print the result of their own check behind the algorithm.
        if error.code != expat.errors.codes[expat.errors.XML_ERROR_JUNK_AFTER_DOC_ELEMENT]:
            what = f"is not XML: {expat.errors.messages[error.code]}"
            raise Malformed(error.lineno, what) from None
        if b"<algo" in text.encode()[reader.parser.ErrorByteIndex :]:
            hint = "keep one in the file"
            raise Malformed(error.lineno, "has a second algorithm", hint) from None
        reader.nodes.left_out.append(f"text after the algorithm, from line {error.lineno} on")
    return reader.trace()


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a thread block, its line, its key, and that of the step that it waits for."""

    line: int
    type: str
    key: Key
    awaited: Key | None
    source: Cells
    target: Cells


@dataclass
class Block:
    """A thread block: the ranks that it sends to and receives from, -1 for none.

    `steps` is the number of its steps so far, `last` the node that the next one comes after.
    """

    number: int
    send: int
    receive: int
    channel: int
    steps: int = 0
    last: list[int] = field(default_factory=list)


class _Reader:
    """Builds nodes from the elements of the XML, in their order."""

    algorithm: Algorithm
    nodes: Nodes
    gpu: int
    block: Block

    def __init__(self, defaults: Defaults) -> None:
        self.parser, self.defaults = expat.ParserCreate(), defaults
        self.open: list[str] = []
        # The bytes that are sent for a chunk.
        self.chunk_bytes = Fraction(0)
        # The step of each node; the nodes that wait for steps of other blocks; the last node of
        # each step, and the blocks of each GPU in order.
        self.steps: list[Step] = []
        self.waits: list[tuple[int, Key]] = []
        self.ends: dict[Key, int] = {}
        self.blocks: dict[int, dict[int, int]] = {}
        # The number of chunks that steps touch.
        self.chunks = 0
        self.unknown: Counter[str] = Counter()
        # The block that sends to, or receives from, each peer of a GPU on a channel.
        self.users: dict[tuple[str, int, int, int], int] = {}
        self.parser.StartElementHandler = self._begin
        self.parser.EndElementHandler = lambda _name: self.open.pop()
        doctype = "has a DOCTYPE", "leave it out"
        self.parser.StartDoctypeDeclHandler = lambda *_: self._refuse(*doctype)

    def _refuse(self, what: str, hint: str = "") -> NoReturn:
        raise Malformed(self.parser.CurrentLineNumber, what, hint)

    def _begin(self, name: str, given: Attributes) -> None:
        if len(self.open) == len(LEVELS) or name != LEVELS[len(self.open)]:
            inside = self.open[-1] if self.open else "the file"
            self._refuse(f"unknown element <{name[:40]}> in {inside}")
        self.open.append(name)
        unknown = given.keys() - set(KNOWN[name].split())
        self.unknown.update(f"{key[:40]!r} of <{name}>" for key in unknown)
        read = {"algo": self._algorithm, "gpu": self._gpu, "tb": self._block, "step": self._step}
        read[name](given)

    def _number(self, given: Attributes, key: str, least: int, most: int, default: str = "") -> int:
        """Return an attribute that is a number within bounds."""
        text = given.get(key, default)
        if NUMBER.fullmatch(text) and least <= (number := int(text)) <= most:
            return number
        self._refuse(f"{key} must be {least} to {most}, got {text[:40]!r}")

    def _algorithm(self, given: Attributes) -> None:
        protocol, size_bytes = given.get("proto", "Simple"), self.defaults.size_bytes
        if protocol not in PROTOCOLS:
            self._refuse(f"unknown proto {protocol[:40]!r}", f"known: {', '.join(PROTOCOLS)}")
        least, most = (self._number(given, f"{end}Bytes", 0, 2**62, "0") for end in ("min", "max"))
        self.algorithm = algorithm = Algorithm(
            line=self.parser.CurrentLineNumber,
            collective=given.get("coll", "").replace("_", ""),
            ranks=self._number(given, "ngpus", 1, MOST_GPUS),
            chunks=self._number(given, "nchunksperloop", 1, MOST_CHUNKS),
            in_place=self._number(given, "inplace", 0, 1, "0") == 1,
        )
        name, chunks, known = algorithm.collective, algorithm.chunks, (*RESULTS, CUSTOM)
        if size_bytes is None:
            self._refuse("needs a size", GIVE_SIZE)
        if not least <= size_bytes <= (most or size_bytes):
            sizes = f"{least} to {most} bytes (minBytes, maxBytes)" if most else f"{least} bytes on"
            self._refuse(f"is for sizes from {sizes}, got {size_bytes}")
        if name not in known:
            self._refuse(f"unknown collective {name[:40]!r}", f"known: {', '.join(known)}")
        if name in CUT and chunks % algorithm.ranks:
            what = f"{name}: {chunks} chunks (nchunksperloop) cannot be divided equally among"
            self._refuse(f"{what} {algorithm.ranks} GPUs")
        self.chunk_bytes = max(1, -(-size_bytes // chunks)) * PROTOCOLS[protocol]
        self.nodes = Nodes(algorithm.ranks)

    def _gpu(self, given: Attributes) -> None:
        algorithm = self.algorithm
        self.gpu = self._number(given, "id", 0, algorithm.ranks - 1)
        if self.gpu in algorithm.buffers:
            self._refuse(f"duplicate GPU {self.gpu}")
        self.blocks[self.gpu] = {}
        algorithm.buffers[self.gpu] = buffers = {
            name: self._number(given, f"{name}_chunks", 0, MOST_CHUNKS) for name in "ios"
        }
        if buffers["i"] > (most := algorithm.input_chunks(self.gpu)):
            what = f"i_chunks of GPU {self.gpu} must be at most {most}, got {buffers['i']}"
            hint = f"{algorithm.collective} has {algorithm.chunks} chunks (nchunksperloop)"
            self._refuse(what, hint)

    def _block(self, given: Attributes) -> None:
        most, of_gpu = self.algorithm.ranks - 1, self.blocks[self.gpu]
        send, receive = (self._number(given, key, -1, most) for key in ("send", "recv"))
        channel = self._number(given, "chan", 0, 2**16)
        number = self._number(given, "id", 0, MOST_BLOCKS - 1)
        if number in of_gpu:
            self._refuse(f"duplicate block {number} of GPU {self.gpu}")
        of_gpu[number] = len(of_gpu)
        for end, peer in (("sends to", send), ("receives from", receive)):
            other = self.users.setdefault((end, self.gpu, peer, channel), number)
            if peer >= 0 and other != number:
                what = f"{end} GPU {peer} on channel {channel}, as block {other} does"
                self._refuse(what, "give each a channel of its own")
        self.block = Block(number, send, receive, channel)

    def _step(self, given: Attributes) -> None:
        block, type_, gpu = self.block, given.get("type", ""), self.gpu
        if type_ not in TYPES:
            self._refuse(f"unknown step type {type_[:40]!r}", f"known: {', '.join(TYPES)}")
        receives, sends = type_ in RECEIVES, type_ in SENDS
        if (sends and block.send < 0) or (receives and block.receive < 0):
            self._refuse(f"step {type_!r} needs a peer of its block")
        if self._number(given, "s", 0, 10**9) != block.steps:
            self._refuse(f"must be step {block.steps} of its block, got {given['s']}")
        count = self._number(given, "cnt", 0 if type_ == "nop" else 1, MOST_CHUNKS)
        source, target = (self._cells(given, end, count) for end in ("src", "dst"))
        on_block = self._number(given, "depid", -1, MOST_BLOCKS - 1, "-1")
        on_step = self._number(given, "deps", -1, 10**9, "-1")
        if on_block < 0 <= on_step:
            self._refuse(f"deps {on_step} without depid", "name the block that it is a step of")
        line, key = self.parser.CurrentLineNumber, (gpu, block.number, block.steps)
        self.chunks += max(2, count)
        require_nodes(self.chunks, line)
        awaited = (gpu, on_block, on_step) if on_block >= 0 else None
        step = Step(line, type_, key, awaited, source, target)
        if awaited is not None:
            self.waits.append((len(self.steps), awaited))
        if receives:
            self._add(step, Node(Action.RECEIVE, gpu, line, block.receive, tag=block.channel))
        if sends:
            size_bytes = ceil(count * self.chunk_bytes)
            node = Node(Action.SEND, gpu, line, block.send, size_bytes, block.channel)
            self._add(step, node)
        if not receives and not sends:
            self._add(step, Node(Action.COMPUTE, gpu, line))
        block.steps += 1

    def _cells(self, given: Attributes, end: str, count: int) -> Cells:
        name = given.get(f"{end}buf", "i")
        if name not in ("i", "o", "s"):
            self._refuse(f"{end}buf must be 'i', 'o' or 's', got {name[:40]!r}")
        return Cells(self.gpu, name, self._number(given, f"{end}off", -1, MOST_CHUNKS), count)

    def _add(self, step: Step, node: Node) -> None:
        """Add a part of a step: its receiving, its sending, or all of it."""
        number = self.nodes.add(node, self.block.last)
        self.steps.append(step)
        self.ends[step.key], self.block.last = number, [number]

    def trace(self) -> Trace:
        """Return the trace; raise `Malformed` unless it does the work of the collective."""
        algorithm, nodes, gpus = self.algorithm, self.nodes, self.algorithm.buffers
        if len(gpus) != algorithm.ranks:
            what = f"must have {algorithm.ranks} GPUs (ngpus), got {len(gpus)}"
            raise Malformed(algorithm.line, what)
        require_nodes(sum(map(algorithm.input_chunks, gpus)), algorithm.line)
        for node, awaited in self.waits:
            if awaited not in self.ends:
                what = f"depends on unknown step {awaited[2]} of block {awaited[1]}"
                raise Malformed(self.steps[node].line, what)
            nodes.wait(node, self.ends[awaited])
        for what, count in sorted(self.unknown.items()):
            nodes.left_out.append(f"attribute {what}, {counted(count, 'time')}")
        if algorithm.is_custom:
            nodes.left_out.append("check of the result, which a custom collective does not name")
        trace = nodes.trace(FORMAT)
        _Execution(algorithm, self.blocks).prove(trace, self.steps)
        return trace


class _Execution(Memory[Step]):
    """Executes the steps of all blocks: `blocks` numbers those of each GPU.

    `known` has, for each step that has begun, the last step of each block of its GPU that has
    ended by then (a vector clock; Mattern, 1989). `sent` has the chunks under way between GPUs, by
    the node that sends them, and `passing` those that a node forwards and its step does not store.
    """

    def __init__(self, algorithm: Algorithm, blocks: dict[int, dict[int, int]]) -> None:
        super().__init__(algorithm)
        self.blocks = blocks
        self.known: dict[Key, NDArray[np.int32]] = {}
        self.sent: dict[int, list[Value]] = {}
        self.passing: dict[int, list[Value]] = {}

    def prove(self, trace: Trace, steps: list[Step]) -> None:
        """Raise `Malformed` unless every rank ends with the result of the collective.

        A custom collective has no known result: of it, the order of all accesses is proved.
        """
        ends = sum(len(self.blocks[gpu]) for gpu, _, _ in {step.key for step in steps})
        if ends > MOST_ENDS:
            what = f"must have at most {MOST_ENDS} steps times blocks of a GPU, got {ends}"
            raise Malformed(self.algorithm.line, what)
        for node in trace.order:
            step = steps[node]
            if step.key not in self.known:
                self._begin(step)
            if trace.kind[node] == Action.SEND:
                self._send(node, step)
            elif trace.kind[node] == Action.RECEIVE:
                send = int(trace.sent_by[node])
                self._receive(node, step, self.sent.pop(send), steps[send])
            elif step.type == "cpy":
                self._store(step, self.read(step, step.source))
            elif step.type == "re":
                held, more = self.read(step, step.target), self.read(step, step.source)
                self._store(step, self.added(held, more, partial(self.refuse, step)))
        self.check_result()

    def _begin(self, step: Step) -> None:
        """Note the steps that have ended when a step begins; both of its parts begin at once."""
        gpu, block, number = step.key
        before = self.known.get((gpu, block, number - 1))
        known = np.full(len(self.blocks[gpu]), -1, np.int32) if before is None else before.copy()
        if step.awaited is not None:
            np.maximum(known, self.known[step.awaited], out=known)
        known[self.blocks[gpu][block]] = number
        self.known[step.key] = known

    def _send(self, node: int, step: Step) -> None:
        """Send the chunks at the step's source, or those that it has just received."""
        if step.type == "rrs":
            self.sent[node] = self.passing.pop(node)
        else:
            self.sent[node] = self.read(step, step.source if step.type == "s" else step.target)

    def _receive(self, node: int, step: Step, values: list[Value], sender: Step) -> None:
        """Take the sender's chunks; with a reduction, add those at the source."""
        if len(values) != step.target.size:
            sent = f"{len(values)} chunks, as many as line {sender.line} sends"
            self.refuse(step, f"must receive {sent}, got {step.target.size}")
        if step.type in ("rrs", "rrc", "rrcs"):
            held = self.read(step, step.source)
            values = self.added(held, values, partial(self.refuse, step))
        if step.type == "rrs":
            self.passing[node + 1] = values
        else:
            self._store(step, values)

    def _store(self, step: Step, values: list[Value]) -> None:
        gpu, name, begin, count = step.target
        size = self.algorithm.buffers[gpu][name]
        if not 0 <= begin <= size - count:
            what = f"writes outside the {size} chunks of the buffer {name!r} of GPU {gpu}"
            self.refuse(step, what, f"{name}_chunks is their number")
        self.write(step, step.target, values)

    def refuse(self, access: Step, what: str, hint: str = "") -> NoReturn:
        """Raise `Malformed` at the line of a step."""
        raise Malformed(access.line, what, hint)

    def require_order(self, earlier: Step, later: Step, cells: Cells, number: int) -> None:
        """Raise `Malformed` unless one step of a GPU precedes another one, or is the same one."""
        gpu, block, index = earlier.key
        if self.known[later.key][self.blocks[gpu][block]] < index:
            what = f"unordered access to {cells.named(number)}, with line {earlier.line}"
            self.refuse(later, what, f"make it wait for step {index} of block {block}")
