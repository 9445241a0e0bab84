"""Execution plans of MSCCL++ as traces (microsoft/mscclpp, `python/mscclpp/language`; JSON).

Blocks of threads of each GPU put into memory of other GPUs and get from it. A put is a message.
A get is a request and its answer. A signal behind a put arrives with it; any other one is a
message. Blocks wait for signals, for barriers and semaphores of their GPU, and, with the protocol
LL, for packets, which have a flag for each word. Operations on memory channels hold up their block
until all bytes have arrived, those on port channels do not (`src/core/include/execution_kernel.hpp`
there). A plan that does not do what its collective asks is refused (`msccl_proof`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from math import lcm
from typing import Any, NamedTuple

from model.sentences import counted
from model.workload.trace import Action, Trace
from traffic_gen.traces.formats.json_items import Item, parsed
from traffic_gen.traces.formats.msccl_proof import (
    CUSTOM,
    MOST_PLAN_NODES,
    RESULTS,
    Algorithm,
    Cells,
    PlanAccess,
    PlanExecution,
)
from traffic_gen.traces.formats.nodes import (
    GIVE_SIZE,
    Defaults,
    Malformed,
    Node,
    Nodes,
    require_bytes,
)

FORMAT = "MSCCL++ plan"
# MSCCL++ sends a semaphore's value, of 64 bits; a request names a place in memory.
SIGNAL_BYTES = 8
MOST_GPUS, MOST_CHUNKS, MOST_PARTS = 4096, 2**20, 64
# The proof follows each part of a chunk that is there or moves.
MOST_OPERATIONS, MOST_MOVED = 2**17, 2**19
BUFFERS, CHANNEL_TYPES = ("i", "o", "s"), ("memory", "port", "switch", "none")
NO = 2**31
SIGNALS, WAITS = ("signal", "rlxsignal"), ("wait", "rlxwait")
SEMAPHORES = ("sem_acquire", "sem_release")
Channel = tuple[str, int]
"""The type of a channel, and its number among those of its GPU and type."""
Move = tuple[list[Cells], list[Cells]]
"""The sources and targets of data that move."""


class Kind(NamedTuple):
    """From which source on buffers are remote, or hold packets, and from which target on.

    With `pairs`, each source has a target of its own; else all sources are summed up for all.
    """

    pairs: bool = False
    remote_sources: int = NO
    packet_sources: int = NO
    remote_targets: int = NO
    packet_targets: int = NO


PUT = Kind(pairs=True, remote_targets=0)
KINDS = {
    "copy": Kind(pairs=True),
    "cpkt": Kind(pairs=True, packet_targets=0),
    "upkt": Kind(pairs=True, packet_sources=0),
    "get": Kind(pairs=True, remote_sources=0),
    **dict.fromkeys(("put", "pws", "pwsf"), PUT),
    "ppkt": Kind(pairs=True, remote_targets=0, packet_targets=0),
    "rppkt": Kind(packet_sources=0, remote_targets=0, packet_targets=0),
    "re": Kind(),
    "res": Kind(remote_targets=1),
    "rre": Kind(remote_sources=1),
    "rres": Kind(remote_sources=1, remote_targets=1),
    "repkt": Kind(packet_sources=1),
    "respkt": Kind(packet_sources=1, remote_targets=1, packet_targets=1),
    "recpkt": Kind(packet_sources=1, packet_targets=1),
    "recspkt": Kind(packet_sources=1, remote_targets=2, packet_targets=1),
}
# Behind these, a signal goes with what the block has put before.
BEHIND_PUTS = {"nop", *SIGNALS, *(name for name, kind in KINDS.items() if kind is PUT)}
# Keys of objects, from a plan's down to those of operations.
KEYS = (
    "name collective protocol inplace reuse_resources num_threads_per_block gpus",
    "use_double_scratch_buffer buffer_alignment min_message_size max_message_size",
    "id input_chunks output_chunks scratch_chunks threadblocks channels remote_buffers semaphores",
    "channel_type channel_ids connected_to rank type access_channel_types init_value ops",
    "remote_buffer_refs access_channel_type remote_buffer_ids",
    "src_buff dst_buff buffer_id index size tbg_info tb_id tbg_size",
    "barrier_id num_threadblocks semaphore_ids reduce_op",
)
KNOWN = {key for line in KEYS for key in line.split()}
UNKNOWN = {
    **dict.fromkeys(("glre", "glres", "gstore", "gstorepkt"), "a switch reduces or multicasts"),
    "pipeline": "its loop depends on sizes of a real GPU's units",
}


def is_plan(text: str) -> bool:
    """Whether a text is an execution plan of MSCCL++, which wrote `colletive` before 0.8."""
    is_named = '"collective"' in text or '"colletive"' in text
    return text.lstrip().startswith("{") and '"gpus"' in text and is_named


def read_plan(text: str, defaults: Defaults) -> Trace:
    """Read a plan for a collective of some size; raise `Malformed` for any other text."""
    if defaults.size_bytes is None:
        raise Malformed(1, "needs a size", GIVE_SIZE)
    return _Reader(parsed(text), defaults.size_bytes).read()


def _keys(value: Any) -> Iterator[str]:
    """Yield the keys of all objects in a value."""
    if isinstance(value, dict):
        yield from value
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            yield from _keys(inner)


class _Reader:
    """Builds the nodes of a plan, and what they do with memory."""

    def __init__(self, plan: Item, size_bytes: int) -> None:
        self.plan, self.gpus = plan, plan.each("gpus")
        if not 1 <= len(self.gpus) <= MOST_GPUS:
            plan.refuse(f"must have 1 to {MOST_GPUS} gpus, got {len(self.gpus)}")
        if self.gpus[0].has("inputChunks"):
            what = "is a plan of MSCCL++ before 0.8, with other operations"
            plan.refuse(what, "compile it with a later version")
        least = plan.number("min_message_size", 0, 2**64, 0)
        most = plan.number("max_message_size", 0, 2**64, 2**64)
        if not least <= size_bytes <= most:
            plan.refuse(f"is for sizes of {least} to {most} bytes, got {size_bytes}")
        self.parts = self._parts()
        self.algorithm = self._algorithm()
        chunks = self.algorithm.chunks // self.parts
        self.chunk_bytes = require_bytes(-(-size_bytes // chunks), 1)
        self.nodes = Nodes(len(self.gpus))
        if plan.has("buffer_alignment"):
            self.nodes.left_out.append("buffer_alignment: chunks are as long as their bytes")
        unknown = Counter(key for key in _keys(plan.value) if key not in KNOWN)
        for key, count in sorted(unknown.items()):
            self.nodes.left_out.append(f"key {key[:40]!r}, {counted(count, 'time')}")
        self.execution = PlanExecution(self.algorithm, self.nodes)
        # Of each GPU: the peer of each channel, and the rank and letter of each remote buffer.
        self.peers: list[dict[Channel, int]] = []
        self.remote: list[list[tuple[int, str]]] = []
        self.signals: dict[tuple[int, Channel], list[list[int]]] = defaultdict(list)
        self.waits: dict[tuple[int, Channel], list[tuple[int, Item]]] = defaultdict(list)
        self.barriers: dict[tuple[int, int], dict[int, list[tuple[int, int, Item]]]] = {}
        self.semaphores = {
            name: defaultdict[tuple[int, int], list[tuple[int, Item]]](list) for name in SEMAPHORES
        }
        # The block that uses each end of a channel or semaphore.
        self.users: dict[tuple[object, ...], int] = {}
        self.moved = 0

    def _parts(self) -> int:
        """Return into how many parts chunks are cut, so that groups of blocks share a range."""
        parts, operations = 1, 0
        for gpu in self.gpus:
            for block in gpu.each("threadblocks"):
                operations += len(listed := block.each("ops"))
                if operations > MOST_OPERATIONS:
                    block.refuse(f"must have at most {MOST_OPERATIONS} operations in all blocks")
                for operation in listed:
                    if operation.has("tbg_info"):
                        size = operation.of("tbg_info").number("tbg_size", 1, MOST_PARTS)
                        parts = lcm(parts, size)
                        if parts > MOST_PARTS:
                            operation.refuse(f"cuts chunks into more than {MOST_PARTS} parts")
        return parts

    def _algorithm(self) -> Algorithm:
        plan = self.plan
        named = plan.text("collective")
        buffers = {}
        for rank, gpu in enumerate(self.gpus):
            if gpu.number("id", 0, MOST_GPUS) != rank:
                gpu.refuse(f"must have the id {rank}")
            buffers[rank] = {
                name[0]: self.parts * gpu.number(f"{name}_chunks", 0, MOST_CHUNKS, 0)
                for name in ("input", "output", "scratch")
            }
        most = max(buffers[0]["i"], buffers[0]["o"])
        if not most:
            plan.refuse("must have chunks of input or output")
        known, in_place = named if named in RESULTS else CUSTOM, plan.truth("inplace")
        algorithm = Algorithm(1, known, len(self.gpus), most, in_place, buffers)
        if sum(map(algorithm.input_chunks, buffers)) > MOST_MOVED:
            plan.refuse(f"must have at most {MOST_MOVED} parts of chunks as input of all GPUs")
        return algorithm

    def read(self) -> Trace:
        """Return the trace; raise `Malformed` unless it does what the collective asks."""
        most = len(self.gpus) - 1
        for rank, gpu in enumerate(self.gpus):
            listed = gpu.each("remote_buffers")
            self.peers.append(self._channels(gpu))
            self.remote.append(
                [(one.number("rank", 0, most), one.text("type", BUFFERS)) for one in listed]
            )
            for number, block in enumerate(gpu.each("threadblocks")):
                reading = _Block(self, rank, number, block)
                for operation in block.each("ops"):
                    reading.operation(operation)
                self.execution.ends[rank] += reading.last
        self._join_signals()
        self._join_barriers()
        self._join_semaphores()
        self.execution.join_packets()
        if self.algorithm.is_custom:
            what = f"check of the result, which {self.plan.text('collective')[:40]!r} does not name"
            self.nodes.left_out.append(what)
        try:
            trace = self.nodes.trace(FORMAT)
        except Malformed as error:
            self.execution.items[int(error.place.removeprefix(":"))].refuse(error.what)
        self.execution.prove(trace)
        return trace

    def _channels(self, gpu: Item) -> dict[Channel, int]:
        peers: dict[Channel, int] = {}
        for entry in gpu.each("channels"):
            type_ = entry.text("channel_type", CHANNEL_TYPES)
            first = sum(known == type_ for known, _ in peers)
            for number, peer in enumerate(entry.numbers("connected_to", len(self.gpus) - 1), first):
                peers[type_, number] = peer
        return peers

    def used_by(self, block: int, item: Item, *what: object) -> None:
        """Raise `Malformed` if another block uses the same end of a channel or semaphore."""
        if self.users.setdefault(what, block) != block:
            item.refuse("two blocks use it, so its order is open", "give each block its own")

    def _join_signals(self) -> None:
        """Let each wait end with its signal: channels of two GPUs meet in their order."""
        ends: dict[tuple[int, int], list[Channel]] = defaultdict(list)
        for rank, peers in enumerate(self.peers):
            for channel in sorted(peers):
                ends[rank, peers[channel]].append(channel)
        for (rank, channel), waits in self.waits.items():
            peer = self.peers[rank][channel]
            place, others = ends[rank, peer].index(channel), ends[peer, rank]
            signals = self.signals[peer, others[place]] if place < len(others) else []
            for number, (node, item) in enumerate(waits):
                if number >= len(signals):
                    item.refuse(f"waits for a signal that GPU {peer} does not give")
                for received in signals[number]:
                    self.nodes.wait(node, received)

    def _join_barriers(self) -> None:
        for blocks in self.barriers.values():
            rounds = {len(places) for places in blocks.values()}
            for places in blocks.values():
                for number, (_, leave, item) in enumerate(places):
                    if len(rounds) > 1 or item.number("num_threadblocks", 1, NO) != len(blocks):
                        item.refuse(f"{len(blocks)} blocks come to this barrier, not equally often")
                    for others in blocks.values():
                        self.nodes.wait(leave, others[number][0])

    def _join_semaphores(self) -> None:
        for (rank, semaphore), acquires in self.semaphores["sem_acquire"].items():
            releases = self.semaphores["sem_release"][rank, semaphore]
            given = self.gpus[rank].each("semaphores")
            first = given[semaphore].number("init_value", 0, NO) if semaphore < len(given) else 0
            for number, (node, item) in enumerate(acquires[first:]):
                if number >= len(releases):
                    item.refuse("waits for a semaphore that no block releases")
                self.nodes.wait(node, releases[number][0])


class _Block:
    """A block of threads: the nodes that its next operation waits for, and what it has put.

    `put` has the messages right behind which a signal would be, `pending` the sends of each port
    channel that the block has not waited for.
    """

    def __init__(self, reader: _Reader, rank: int, number: int, block: Item) -> None:
        self.reader, self.rank, self.number = reader, rank, number
        self.nodes, self.execution = reader.nodes, reader.execution
        self.last: list[int] = []
        self.put: dict[tuple[str, int], list[int]] = defaultdict(list)
        self.pending: dict[Channel, list[int]] = defaultdict(list)
        peers = reader.peers[rank]
        self.channels: dict[str, list[Channel]] = defaultdict(list)
        for entry in block.each("channels"):
            type_ = entry.text("channel_type", CHANNEL_TYPES)
            for channel in entry.numbers("channel_ids", MOST_CHUNKS):
                if type_ != "switch" and (type_, channel) not in peers:
                    entry.refuse(f"unknown channel {channel}")
                self.channels[type_].append((type_, channel))
        self.remote: dict[str, list[int]] = defaultdict(list)
        for entry in block.each("remote_buffer_refs"):
            most = len(reader.remote[rank]) - 1
            type_ = entry.text("access_channel_type", ("memory", "port"))
            self.remote[type_] += entry.numbers("remote_buffer_ids", most)

    def operation(self, item: Item) -> None:
        """Read one operation."""
        name = item.text("name")
        if name not in BEHIND_PUTS:
            self.put.clear()
        if name in KINDS:
            self._move(item, name, KINDS[name])
        elif name in SIGNALS:
            for channel in self._used_channels(item):
                self._signal(item, channel)
        elif name in WAITS:
            node = self._compute(item)
            for channel in self._used_channels(item):
                self.reader.used_by(self.number, item, self.rank, "wait", channel)
                self.reader.waits[self.rank, channel].append((node, item))
        elif name == "flush":
            for channel in self._used_channels(item):
                self._flush(channel)
        elif name == "barrier":
            barrier = self.rank, item.number("barrier_id", 0, NO)
            blocks, arrive = self.reader.barriers.setdefault(barrier, {}), self._compute(item)
            blocks.setdefault(self.number, []).append((arrive, self._compute(item), item))
        elif name in SEMAPHORES:
            node = self._compute(item)
            for semaphore in item.numbers("semaphore_ids", NO):
                self.reader.used_by(self.number, item, self.rank, name, semaphore)
                self.reader.semaphores[name][self.rank, semaphore].append((node, item))
        elif name != "nop":
            if name not in UNKNOWN:
                item.refuse(f"unknown operation {name[:40]!r}")
            hint = "give a plan of puts, gets, signals and waits"
            item.refuse(f"operation {name!r} cannot be replayed: {UNKNOWN[name]}", hint)

    def _compute(self, item: Item, after: Sequence[int] = ()) -> int:
        """Add a node that takes no time, behind all that the block has waited for."""
        node = self._add(item, Node(Action.COMPUTE, self.rank, 1), [*self.last, *after])
        self.last = [node]
        return node

    def _add(self, item: Item, node: Node, after: Sequence[int] = ()) -> int:
        number = len(self.nodes.added)
        if number == MOST_PLAN_NODES:
            most = f"must have at most {MOST_PLAN_NODES} messages and steps"
            item.refuse(f"{most}, with those before")
        self.execution.items.append(item)
        return self.nodes.add(node._replace(line=number), after)

    def _message(
        self, item: Item, source: int, to: int, size_bytes: int, after: Sequence[int]
    ) -> tuple[int, int]:
        """Add a message; return its send and its receive."""
        tag = len(self.nodes.added)
        send = self._add(item, Node(Action.SEND, source, 1, to, size_bytes, tag), after)
        return send, self._add(item, Node(Action.RECEIVE, to, 1, source, tag=tag))

    def _used_channels(self, item: Item) -> list[Channel]:
        type_ = item.text("channel_type", ("memory", "port"))
        known = self.channels[type_]
        return [known[number] for number in item.numbers("channel_ids", len(known) - 1)]

    def _signal(self, item: Item, channel: Channel) -> None:
        """Signal behind what was put, or else by a message, behind all of the port channel's."""
        self.reader.used_by(self.number, item, self.rank, "signal", channel)
        peer = self.reader.peers[self.rank][channel]
        received = self.put.pop(channel if channel[0] == "port" else ("memory", peer), [])
        if not received:
            after = [*self.last, *self.pending[channel]]
            send, arrived = self._message(item, self.rank, peer, SIGNAL_BYTES, after)
            self.last = [send] if channel[0] == "memory" else self.last
            received = [arrived]
        self.reader.signals[self.rank, channel].append(received)

    def _flush(self, channel: Channel) -> None:
        self.last = self.last + self.pending.pop(channel, [])

    def _move(self, item: Item, name: str, kind: Kind) -> None:
        """Read an operation that moves data, with all of its pairs of buffers, or as a sum."""
        is_port = item.has("channel_type") and item.text("channel_type") == "port"
        type_ = "port" if is_port else "memory"
        sources = self._buffers(item, "src_buff", type_, kind.remote_sources)
        targets = self._buffers(item, "dst_buff", type_, kind.remote_targets)
        has, of_targets = f"has {counted(len(sources), 'source')}", counted(len(targets), "target")
        if not sources or not targets or (kind.pairs and len(sources) != len(targets)):
            item.refuse(f"{has} and {of_targets}")
        moves, channels = [(sources, targets)], list[Channel | None]([None])
        if kind.pairs:
            moves = [([one], [other]) for one, other in zip(sources, targets, strict=True)]
            channels = [*self._used_channels(item)] if is_port else [None] * len(moves)
        if len(channels) != len(moves):
            item.refuse(f"has {counted(len(channels), 'channel')} for {of_targets}")
        for (of, to), channel in zip(moves, channels, strict=True):
            if len({cells.size for cells in (*of, *to)}) > 1:
                item.refuse("has buffers of different sizes")
            self._sum(item, kind, (of, to), channel)
            if channel and name in ("pws", "pwsf"):
                self._signal(item, channel)
            if channel and name == "pwsf":
                self._flush(channel)

    def _sum(self, item: Item, kind: Kind, move: Move, channel: Channel | None) -> None:
        """Get remote sources, add all, write local targets, and put into remote ones."""
        (sources, targets), execution = move, self.execution
        begins, slots, arrived = list[int](), list[int](), list[int]()
        for source in sources[kind.remote_sources :]:
            asked, there = self._message(item, self.rank, source.gpu, SIGNAL_BYTES, self.last)
            answer, here = self._message(item, source.gpu, self.rank, self._bytes(source), [there])
            begins.append(asked)
            slots.append(execution.will_read(answer, answer, source))
            arrived.append(here)
        node = self._compute(item, arrived)
        for number, source in enumerate(sources[: kind.remote_sources]):
            is_packet = number >= kind.packet_sources
            slots.append(execution.will_read(node, node, source, is_packet=is_packet))
        total, first = execution.will_add(node, slots), [*begins, node][0]
        for number, target in enumerate(targets[: kind.remote_targets]):
            is_packet = number >= kind.packet_targets
            execution.writes[node].append(PlanAccess(first, node, node, target, total, is_packet))
        ends = list[int]()
        for target in targets[kind.remote_targets :]:
            is_packet = kind.packet_targets != NO
            size_bytes = self._bytes(target, 2 if is_packet else 1)
            send, received = self._message(item, self.rank, target.gpu, size_bytes, [node])
            if kind.pairs:
                execution.will_read(node, send, sources[0])
            access = PlanAccess(send, send, received, target, total, is_packet)
            execution.writes[send].append(access)
            self.put[channel or ("memory", target.gpu)].append(received)
            ends.append(send)
        if channel:
            self.pending[channel] += ends
        elif ends:
            self.last = ends

    def _bytes(self, cells: Cells, times: int = 1) -> int:
        size_bytes = -(-cells.size * self.reader.chunk_bytes // self.reader.parts)
        return require_bytes(times * size_bytes, 1)

    def _buffers(self, item: Item, key: str, type_: str, first_remote: int) -> list[Cells]:
        return [
            self._buffer(item, one, type_, is_remote=number >= first_remote)
            for number, one in enumerate(item.each(key))
        ]

    def _buffer(self, item: Item, given: Item, type_: str, *, is_remote: bool) -> Cells:
        """Return the cells of a buffer: of a block in a group, its own part of them."""
        rank, parts = self.rank, self.reader.parts
        if is_remote:
            known = self.remote[type_]
            place = known[given.number("buffer_id", 0, len(known) - 1)]
            rank, name = self.reader.remote[self.rank][place]
        else:
            name = given.text("type", BUFFERS)
        index, size = (given.number(key, 0, MOST_CHUNKS) for key in ("index", "size"))
        if not size or (index + size) * parts > self.reader.algorithm.buffers[rank][name]:
            given.refuse(f"is outside of buffer {name!r} of GPU {rank}")
        own, blocks = 0, 1
        if item.has("tbg_info"):
            group = item.of("tbg_info")
            blocks = group.number("tbg_size", 1, MOST_PARTS)
            own = group.number("tb_id", 0, blocks - 1)
        count = size * parts // blocks
        self.reader.moved += count
        if self.reader.moved > MOST_MOVED:
            item.refuse(f"moves more than {MOST_MOVED} parts of chunks, with those before")
        return Cells(rank, name, index * parts + own * count, count)
