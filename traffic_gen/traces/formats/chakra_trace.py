"""A trace from the nodes of Chakra execution traces, whichever form their files have."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from model.arrays import Bools, Floats, Ints
from model.sentences import counted
from model.workload.trace import Action, Contradiction, Operation, Trace, matched
from model.workload.transfers.columns import NONE, Rows
from traffic_gen.traces.formats.chakra_groups import Groups
from traffic_gen.traces.formats.chakra_nodes import ALL_FILES, MISSING, NodeColumns, Source
from traffic_gen.traces.formats.chakra_writing import COLLECTIVES, GATHERED, TYPE_OF
from traffic_gen.traces.formats.nodes import GIVE_SIZE, MOST_BYTES, MOST_SECONDS, Defaults, fitted

FORMAT = "Chakra"
# What ASTRA-sim's converter of MSCCL writes: sends of chunks, without bytes.
FORMAT_OF_CHUNKS = "Chakra of MSCCL"
# Numbers of the schemas 0.0.4 and 1.0; those before have others.
LOAD, STORE, MOST_TYPE = 2, 3, 7
BARRIER = 9
ROOTED = [number for number, collective in enumerate(COLLECTIVES) if collective.has_root]


class Assembly:
    """Puts a trace together from the nodes of all files."""

    def __init__(self, source: Source, columns: NodeColumns, given: Defaults) -> None:
        self.source, self.rank, self.given = source, source.rank, given
        self.ranks = len(source.file_of)
        self.kind = kind = np.zeros(len(self.rank), np.int64)
        for one, type_ in TYPE_OF.items():
            kind[columns.type == type_] = one
        # The nodes by which a CPU starts a communication that is a node of its own: PyTorch's
        # converter writes them without the type, or the peer, of the communication.
        absent = (kind == Action.COLLECTIVE) & (columns.comm_type < 0)
        absent |= (kind == Action.SEND) & (columns.comm_dst < 0)
        absent |= (kind == Action.RECEIVE) & (columns.comm_src < 0)
        self.launches = absent & (columns.is_cpu_op > 0)
        kind[self.launches] = Action.COMPUTE
        self.sends, self.receives = kind == Action.SEND, kind == Action.RECEIVE
        self.collectives = kind == Action.COLLECTIVE
        self.timed: Bools = (columns.duration_micros > 0) | (columns.runtime > 0)
        barriers = self.collectives & (columns.comm_type == BARRIER)
        self.columns = replace(columns, comm_size=np.where(barriers, 0, columns.comm_size))
        # The nodes whose size is given in chunks alone.
        self.chunks = (columns.msg_chunk_cnt >= 0) & (columns.total_chunk_cnt > 0)
        self.chunks &= columns.comm_size == MISSING
        self.is_chunked = bool((self.sends & self.chunks).any())
        # The operations whose process group does not have the ranks of their dimensions.
        self.overruled = 0

    def trace(self) -> Trace:
        """Return the trace; raise `Malformed` where nodes do not fit together."""
        columns, kind = self.columns, self.kind
        known = (columns.type > 0) & (columns.type <= MOST_TYPE)
        self._require(known, f"unknown type of node; types are 1 to {MOST_TYPE}", columns.type)
        self._require_counts()
        peer, seconds, modeled = self._peers(), self._seconds(), self._modeled()
        size_bytes = self._sizes()
        operation, operations = self._operations()
        data, control, missing = self._after()
        streams = self._streams()
        left_out = tuple(self._left_out(seconds, modeled, operation))
        try:
            trace = Trace(
                format=FORMAT_OF_CHUNKS if self.is_chunked else FORMAT,
                ranks=self.ranks,
                kind=kind,
                rank=self.rank,
                peer=peer,
                size_bytes=np.where(self.sends, size_bytes, 0),
                seconds=seconds,
                after=data,
                sent_by=matched(kind, self.rank, peer, np.maximum(0, columns.comm_tag)),
                operation=operation,
                operations=operations,
                flops=_counted(columns.num_ops, modeled),
                memory_bytes=_counted(columns.tensor_size, modeled),
                processor=self._processors(),
                turn=columns.id,
                left_out=left_out,
            )
            trace = fitted(
                trace,
                np.where(self.receives, size_bytes, MISSING),
                lambda node: f"at {self.source.place(node).removeprefix(': ')} of its file",
            )
        except Contradiction as error:
            raise self.source.at(error.node, str(error)) from None
        trace = _waiting(trace, streams, "orders of two kernels of a stream")
        # As in ASTRA-sim; those of PyTorch name the caller of a node, which may wait for it: then
        # all are left out, as MLCommons' feeder does with any trace.
        return _waiting(trace, control, "control dependencies", missing)

    def _require(
        self, right: Bools, what: str, got: Ints | Floats | None = None, hint: str = ""
    ) -> None:
        """Raise `Malformed` at the first node that is not right, with the value it has."""
        if not right.all():
            node = int(np.argmin(right))
            raise self.source.at(node, what if got is None else f"{what}, got {got[node]}", hint)

    def _require_counts(self) -> None:
        columns = self.columns
        for name in ("duration_micros", "runtime", "num_ops", "tensor_size"):
            values = getattr(columns, name)
            self._require((values >= 0) | (values == MISSING), f"{name} must be 0 or more", values)
        right = (columns.comm_tag >= 0) | (columns.comm_tag == MISSING)
        what = "comm_tag must be 0 or more: name that of the other end, not any (-1)"
        self._require(~(self.sends | self.receives) | right, what, columns.comm_tag)

    def _peers(self) -> Ints:
        peer = np.full(len(self.kind), NONE)
        for what, nodes, name, own_name in (
            ("send", self.sends, "comm_dst", "comm_src"),
            ("receive", self.receives, "comm_src", "comm_dst"),
        ):
            named, own = getattr(self.columns, name), getattr(self.columns, own_name)
            self._require(~nodes | (named != MISSING), f"{what} without a peer: it needs {name}")
            right = (named >= 0) & (named < self.ranks)
            known = f"must be one of the ranks 0 to {self.ranks - 1}"
            self._require(~nodes | right, f"{name} {known}", named, ALL_FILES)
            right = (own == MISSING) | (own == self.rank)
            self._require(~nodes | right, f"{own_name} must be the rank of the file", own)
            peer[nodes] = named[nodes]
        return peer

    def _sizes(self) -> Ints:
        """Return the bytes of each send and receive: `comm_size`, or its share in chunks.

        MLCommons' generator writes `tensor_size` alone. A receive may have no size.
        """
        columns, buffer_bytes = self.columns, self.given.size_bytes
        is_sizeless = columns.comm_size == MISSING
        size_bytes = np.where(is_sizeless, columns.tensor_size, columns.comm_size)
        if self.is_chunked:
            if buffer_bytes is None:
                what = "send has chunks, and no comm_size: needs the size of the buffer that has"
                first = int(np.argmax(self.sends & self.chunks))
                raise self.source.at(first, f"{what} total_chunk_cnt chunks", GIVE_SIZE)
            fits = columns.msg_chunk_cnt <= columns.total_chunk_cnt
            self._require(~self.chunks | fits, "msg_chunk_cnt must be at most total_chunk_cnt")
            counts = np.where(self.chunks, columns.msg_chunk_cnt, 0)
            shares = counts / np.maximum(1, columns.total_chunk_cnt)
            of_buffer = np.rint(shares * buffer_bytes).astype(np.int64)
            size_bytes = np.where(self.chunks, of_buffer, size_bytes)
        sized_receives = self.receives & (size_bytes != MISSING)
        self._require_bytes(self.sends | sized_receives, size_bytes)
        return size_bytes

    def _require_bytes(self, nodes: Bools, size_bytes: Ints) -> None:
        self._require(~nodes | (size_bytes != MISSING), "communication without comm_size")
        right = ~nodes | (size_bytes >= 0) & (size_bytes <= MOST_BYTES)
        self._require(right, f"comm_size must be 0 to {MOST_BYTES} bytes", size_bytes)

    def _seconds(self) -> Floats:
        columns = self.columns
        micros = np.where(columns.duration_micros > 0, columns.duration_micros, columns.runtime)
        seconds = np.where(self.kind == Action.COMPUTE, np.maximum(0, micros), 0) / 1e6
        self._require(seconds <= MOST_SECONDS, "must take at most a day, in microseconds", micros)
        return seconds

    def _processors(self) -> Ints:
        """Return 0 for compute of a GPU, 1 on the CPU: each has one at a time, as in ASTRA-sim.

        Kernels on a stream wait for those before them instead.
        """
        columns = self.columns
        computes = (columns.type == TYPE_OF[Action.COMPUTE]) | self.launches
        on_cpu = columns.is_cpu_op > 0
        takes_turns = computes & (on_cpu | (columns.stream == MISSING))
        return np.where(takes_turns, np.where(on_cpu, 1, 0), NONE)

    def _modeled(self) -> Bools:
        """The nodes whose duration follows from their FLOPs and bytes of memory."""
        columns = self.columns
        computes: Bools = (columns.type == TYPE_OF[Action.COMPUTE]) & (columns.is_cpu_op <= 0)
        return computes & ~self.timed & ((columns.num_ops > 0) | (columns.tensor_size > 0))

    def _left_out(self, seconds: Floats, modeled: Bools, operation: Ints) -> Iterator[str]:
        """Yield what is in the files and not in the trace."""
        columns, collectives = self.columns, self.collectives
        memory = ((columns.type == LOAD) | (columns.type == STORE)) & (seconds == 0)
        moved = sum(np.maximum(0, columns.tensor_size[memory]).tolist())
        computes = columns.type == TYPE_OF[Action.COMPUTE]
        ranked = (columns.comm_priority != 0) & (columns.comm_priority != MISSING)
        rootless = np.isin(columns.comm_type, ROOTED) & (columns.comm_src == MISSING)
        roots = len(np.unique(operation[collectives & rootless]))
        untimed = computes & (seconds == 0) & ~modeled
        beyond = [any(one != dims[1] for one in dims[2:]) for dims in columns.involved.values()]
        recorded = self.timed & (self.kind != Action.COMPUTE)
        flops = computes & self.timed & (columns.num_ops > 0)
        twice = (columns.duration_micros > 0) & (columns.runtime > 0)
        twice &= columns.duration_micros != columns.runtime
        messages = self.sends | self.receives
        resized = (messages | collectives) & (columns.comm_size >= 0) & (columns.tensor_size > 0)
        resized &= columns.comm_type != BARRIER
        resized &= columns.tensor_size != columns.comm_size
        in_group = columns.comm_group != MISSING
        in_group[list(columns.group)] = True
        tagged, overruled = collectives & (columns.comm_tag > 0), self.overruled
        counts: Sequence[tuple[str, str, Bools | int]] = (
            (
                "{} on the CPU without a type or a peer, but for their time",
                "communication",
                self.launches,
            ),
            (f"{{}}, {moved} bytes, without a duration", "memory operation", memory),
            ("compute of {} without a duration and without num_ops of a GPU", "node", untimed),
            ("priorities of {}", "communication", (self.sends | collectives) & ranked),
            ("roots of {}, which the files lack: the first ranks", "operation", roots),
            ("involved_dim of {} beyond the network's two dimensions", "operation", sum(beyond)),
            ("involved_dim of {}, whose groups have other ranks here", "operation", overruled),
            ("durations of {}, which the network decides", "communication", recorded),
            ("num_ops of {}, which have a duration", "node", flops),
            ("runtime of {}, whose duration_micros differs", "node", twice),
            ("tensor_size of {}, whose comm_size differs", "communication", resized),
            ("groups of {}, whose peers are ranks", "message", in_group & messages),
            ("tags of {}, in the order of their group", "collective operation", tagged),
            ("comm_dst of {}", "collective operation", collectives & (columns.comm_dst >= 0)),
        )
        for what, noun, nodes in counts:
            if count := int(np.sum(nodes)):
                yield what.format(counted(count, noun))
        for name, count in sorted(columns.unread.items()):
            yield f"attribute {name[:40]!r} of {counted(count, 'node')}"

    def _after(self) -> tuple[Rows, Rows, int]:
        """Turn ids into numbers of nodes, each within its rank's file.

        Return data and control dependencies, and the number of the latter on missing nodes.
        """
        ids, place = np.unique(self.columns.id, return_inverse=True)
        key = self.rank * len(ids) + place
        order = np.argsort(key, kind="stable")
        ordered = key[order]
        if (twice := np.flatnonzero(np.diff(ordered) == 0)).size:
            raise self.source.at(int(order[twice[0] + 1]), "duplicate id")

        def found(waits: Rows) -> tuple[Ints, Bools]:
            """The nodes with these ids, and whether there are such nodes."""
            nearest = np.minimum(np.searchsorted(ids, waits.values), len(ids) - 1)
            wanted = self.rank[waits.row] * len(ids) + nearest
            at = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
            return order[at], (ids[nearest] == waits.values) & (ordered[at] == wanted)

        data, control = self.columns.data, self.columns.control
        after, right = found(data)
        if not right.all():
            wrong = int(np.argmin(right))
            what = f"data dependency on unknown node {data.values[wrong]} of this file"
            raise self.source.at(int(data.row[wrong]), what, "leave it out, or add the node")
        also, here = found(control)
        known = Rows.grouped(also[here], control.row[here], len(self.rank))
        return Rows(after, data.starts), known, int((~here).sum())

    def _streams(self) -> Rows:
        """Return the node before each one on its stream of a GPU, whose kernels go in turn."""
        columns = self.columns
        nodes = np.flatnonzero((columns.stream != MISSING) & (columns.is_cpu_op <= 0))
        nodes = nodes[np.lexsort((columns.id[nodes], columns.stream[nodes], self.rank[nodes]))]
        follows = (np.diff(self.rank[nodes]) == 0) & (np.diff(columns.stream[nodes]) == 0)
        return Rows.grouped(nodes[:-1][follows], nodes[1:][follows], len(self.rank))

    def _operations(self) -> tuple[Ints, tuple[Operation, ...]]:
        """Return the operation of each node, and all of them."""
        nodes, columns = self.collectives, self.columns
        self._require(~nodes | (columns.comm_type != MISSING), "collective without comm_type")
        self._require_bytes(nodes, columns.comm_size)
        groups = Groups(self.source, columns, self.given.domain_size)
        calls = groups.calls(np.flatnonzero(nodes))
        self.overruled = groups.overruled.total()
        operation, operations = np.full(len(self.kind), NONE), list[Operation]()
        for of_rank in calls.values():
            counts = {rank: len(listed) for rank, listed in of_rank.items()}
            fewest = min(counts, key=counts.__getitem__)
            for listed in of_rank.values():
                if len(listed) > counts[fewest]:
                    node = listed[counts[fewest]]
                    what = f"rank {fewest} takes no part in this collective operation"
                    hint = "give it a pg_name that its ranks alone have"
                    all_calls = np.flatnonzero(nodes & (self.rank == fewest)).tolist()
                    elsewhere = map(groups.name, set(all_calls) - set(of_rank[fewest]))
                    if (name := groups.name(node)) and name in elsewhere:
                        order = "of other ranks, or in another order"
                        what = f"rank {fewest} names {name!r} a group {order}"
                        hint = "list it alike in the files of all its ranks, or in none"
                    raise self.source.at(node, what, hint)
            together = np.array(list(of_rank.values()), np.int64)
            operation[together] = len(operations) + np.arange(together.shape[1])
            operations += self._operations_of(together, tuple(of_rank))
        return operation, tuple(operations)

    def _operations_of(self, together: Ints, ranks: tuple[int, ...]) -> Iterator[Operation]:
        """Yield the operations of a group; the ranks of each begin with its root, if it has one.

        `together` has a row of nodes for each of the group's ranks.
        """
        columns = self.columns
        types = columns.comm_type[together]
        roots = np.where(np.isin(types, ROOTED), columns.comm_src[together], MISSING)
        same = {"comm_type": types, "comm_size": columns.comm_size[together], "comm_src": roots}
        for name, values in same.items():
            if (differs := values != values[0]).any():
                wrong = int(together[:, differs.any(axis=0)][differs[:, differs.any(axis=0)]][0])
                what = f"differs from the collective operation of rank {ranks[0]} in {name}"
                hint = "give all ranks the same operations of a group, in one order"
                raise self.source.at(wrong, what, hint)
        for node in together[0].tolist():
            type_, size_bytes = int(columns.comm_type[node]), int(columns.comm_size[node])
            if not 0 <= type_ < len(COLLECTIVES):
                what = f"unknown collective (comm_type {type_}); known: 0 to {len(COLLECTIVES) - 1}"
                raise self.source.at(node, what)
            collective, root = COLLECTIVES[type_], int(columns.comm_src[node])
            whole_bytes, first = size_bytes * (len(ranks) if collective in GATHERED else 1), 0
            if collective.has_root and root != MISSING:
                if root not in ranks:
                    what = f"comm_src {root} must be one of the ranks of its group"
                    raise self.source.at(node, what)
                first = ranks.index(root)
            yield Operation(collective, whole_bytes, ranks[first:] + ranks[:first])


def _waiting(trace: Trace, more: Rows, what: str, missing: int = 0) -> Trace:
    """Return a trace whose nodes wait for more ones, unless they would wait for each other.

    Others that are `missing` are told, as all are that are left out.
    """
    if not (count := len(more.values) + missing):
        return trace
    told = (f"{missing} {what} on nodes that the file does not have",) * (missing > 0)
    values = np.concatenate([trace.after.values, more.values])
    after = Rows.grouped(values, np.concatenate([trace.after.row, more.row]), len(trace))
    both = replace(trace, after=after, left_out=(*told, *trace.left_out))
    try:
        _ = both.order
    except Contradiction:
        all_ = f"{count} {what}, with which nodes would wait for each other"
        return replace(trace, left_out=(all_, *trace.left_out))
    return both


def _counted(values: Ints, of: Bools) -> Floats | None:
    """Return the values of some nodes, 0 for all others; nothing if there are no such nodes."""
    return np.where(of, np.maximum(0, values), 0.0) if of.any() else None
