"""Chakra execution traces as each family of programs writes them, small ones of our own making.

MLCommons' generator, and its converters of text and of PyTorch's traces; the symbolic tensor graph;
ASTRA-sim's converter of MSCCL. What a writer leaves out or does its own way is in its sample.
"""

import gzip
import json
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.errors import InputError
from model.workload.trace import Action, Operation, Trace
from model.workload.transfers.collective import Collective
from model.workload.transfers.columns import NONE
from scenarios.load import load
from tests.unit.chakra_bytes import (
    COLLECTIVE,
    COMPUTE,
    FIXED,
    RECEIVE,
    SEND,
    attribute,
    collective,
    content,
    fed,
    fixed,
    framed,
    jsonized,
    metadata,
    node,
    number,
    symbolic_json,
)
from traffic_gen.traces import replay
from traffic_gen.traces.formats import chakra_json
from traffic_gen.traces.formats.chakra import is_chakra
from traffic_gen.traces.formats.chakra_nodes import GROUPS
from traffic_gen.traces.formats.nodes import NO_DEFAULTS, Defaults, Malformed
from traffic_gen.traces.reading import files_of, read_trace, trace_in

ALL_REDUCE, REDUCE, ALL_GATHER, GATHER, SCATTER, ALL_TO_ALL, REDUCE_SCATTER = 0, 1, 2, 3, 4, 6, 7
BARRIER = 9
RANKS, KIB, MIB = 4, 2**10, 2**20
ON_GPU = attribute("is_cpu_op", 0, "bool")
ON_CPU = attribute("is_cpu_op", 1, "bool")
# Two domains of two GPUs.
FABRIC = Defaults(ranks=RANKS, domain_size=2)


def read(*files: bytes, given: Defaults = FABRIC) -> Trace:
    return trace_in(files, given)


def everywhere(*nodes: bytes, first: bytes = b"\x00") -> list[bytes]:
    """The same file for each rank; its metadata are empty."""
    return [first + b"".join(nodes)] * RANKS


def groups(trace: Trace) -> Counter[tuple[int, ...]]:
    return Counter(tuple(sorted(operation.ranks)) for operation in trace.operations)


def seconds(trace: Trace) -> list[float]:
    """The compute of each rank."""
    busy: list[float] = np.bincount(trace.rank, weights=trace.seconds).round(9).tolist()
    return busy


# MLCommons' generator: it writes a version, one node a file, and sends that name no peer.
def test_the_generator_of_mlcommons() -> None:
    version = metadata("1.0.0")
    for comm_type, expected, size_bytes in (
        (ALL_REDUCE, Collective.ALL_REDUCE, 64 * KIB),
        (ALL_TO_ALL, Collective.ALL_TO_ALL, 64 * KIB),
        (ALL_GATHER, Collective.ALL_GATHER, RANKS * 64 * KIB),
        (REDUCE_SCATTER, Collective.REDUCE_SCATTER, 64 * KIB),
        (REDUCE, Collective.REDUCE, 64 * KIB),
        (GATHER, Collective.GATHER, RANKS * 64 * KIB),
        (SCATTER, Collective.SCATTER, 64 * KIB),
        (BARRIER, Collective.ALL_REDUCE, 0),
    ):
        files = [version + collective(rank, comm_type, 64 * KIB, ON_GPU) for rank in range(RANKS)]
        (operation,) = read(*files).operations
        assert operation == Operation(expected, size_bytes, tuple(range(RANKS)))
    pair = node(4, COMPUTE, ON_GPU, micros=5), node(5, COMPUTE, ON_GPU, micros=5, data=[4])
    assert seconds(read(*everywhere(*pair, first=version))) == [1e-5] * RANKS


def test_all_ranks_of_a_group_have_the_same_root() -> None:
    def scattered(*roots: int) -> Trace:
        named = [attribute("comm_src", root) for root in roots]
        return read(*[b"\x00" + collective(1, SCATTER, 64, root) for root in named])

    assert scattered(2, 2, 2, 2).operations == (Operation(Collective.SCATTER, 64, (2, 3, 0, 1)),)
    with pytest.raises(Malformed, match="differs from the collective operation of rank 0"):
        scattered(2, 2, 2, 3)
    told = ("roots of 1 operation, which the files lack: the first ranks",)
    assert read(*everywhere(collective(1, SCATTER, 64))).left_out == told


def test_memory_of_the_generator_of_mlcommons_is_told() -> None:
    store = node(1, 3, ON_GPU, attribute("tensor_size", 1024, "uint64"))
    timed = node(2, 2, ON_GPU, attribute("tensor_size", 1024, "uint64"), micros=7)
    trace = read(*everywhere(store, timed))
    assert trace.left_out == ("4 memory operations, 4096 bytes, without a duration",)
    assert seconds(trace) == [7e-6] * RANKS


def test_metadata_nodes_of_the_generator_have_all_kinds_of_attributes() -> None:
    every = [
        content(10, content(1, f"a{field}") + content(field, content(1, b"\x01")))
        for field in (4, 8, 12, 24, 28, 30, 31, 32)
    ]
    fixed = content(10, content(1, "double") + b"\x19" + bytes(8))
    trace = read(*everywhere(node(0, 1, *every, fixed), collective(1, ALL_REDUCE, 8)))
    assert (len(trace), trace.left_out) == (2 * RANKS, ())


@pytest.mark.parametrize(
    ("type_", "said"),
    [(SEND, "send without a peer: it needs comm_dst"), (RECEIVE, "receive without a peer")],
)
def test_a_message_without_a_peer_is_refused(type_: int, said: str) -> None:
    alone = node(0, type_, ON_GPU, attribute("tensor_size", 1024, "uint64"))
    with pytest.raises(Malformed, match=said) as refused:
        read(*everywhere(alone))
    assert refused.value.place == ": byte 2"


def test_a_communication_without_a_size_is_refused() -> None:
    for type_, of in ((SEND, attribute("comm_dst", 0)), (COLLECTIVE, attribute("comm_type", 0))):
        with pytest.raises(Malformed, match="communication without comm_size"):
            read(*everywhere(node(0, type_, ON_GPU, of)))


# The text converter writes no version, and the text itself among the metadata.
def test_the_text_converter_of_mlcommons() -> None:
    text = "HYBRID_DATA_MODEL\n2\n" + "layer\t-1\t7\tALLREDUCE\t2048\n" * 500
    first = metadata(schema="1.0.2-chakra.1.0.0", input_file=text)

    def of(first_id: int) -> bytes:
        forward = node(first_id, COMPUTE, micros=7)
        reduced = collective(first_id + 1, ALL_REDUCE, 2048, data=[first_id])
        weights = node(first_id + 2, COMPUTE, micros=3, data=[first_id + 1])
        return first + forward + reduced + weights

    trace = read(*(of(3 * rank) for rank in range(RANKS)))
    assert trace.operations == (Operation(Collective.ALL_REDUCE, 2048, (0, 1, 2, 3)),)
    assert seconds(trace) == [1e-5] * RANKS
    assert (trace.after.lengths.reshape(RANKS, 3) == [0, 1, 1]).all()


# PyTorch's converter: operators of the CPU, kernels of the GPU, process groups as metadata.
def pytorch_groups(*listed: tuple[str, list[int]]) -> bytes:
    """The metadata node of process groups: a Python list of one text, in JSON."""
    inner = ", ".join(
        f'{{"pg_name": "{name}", "pg_desc": "x", "ranks": {ranks}}}' for name, ranks in listed
    )
    return node(2, 1, ON_CPU, inputs=f"['[{inner}]']")


def pytorch_rank(rank: int, name: str, ranks: list[int]) -> bytes:
    first = metadata(schema="1.1.1-chakra.0.0.4", pid="17", start_ts="1", finish_ts="2")
    attributes = attribute("rf_id", 12), attribute("op_schema", ""), attribute("tid", 1)
    launch = node(7, COLLECTIVE, *attributes, ON_CPU, control=[3], data=[4], micros=2)
    kernel = collective(
        8, ALL_REDUCE, MIB, *attributes, ON_GPU, attribute("stream", 7),
        attribute("pg_name", name), data=[7], control=[4],
    )  # fmt: skip
    return b"".join(
        (
            first,
            pytorch_groups(("0", []), (name, ranks)),
            node(4, COMPUTE, *attributes, ON_CPU, control=[3], micros=40),
            launch,
            kernel,
            collective(9, ALL_REDUCE, KIB, ON_GPU, attribute("pg_name", "0"), data=[8]),
        )
    )


def test_the_pytorch_converter_of_mlcommons() -> None:
    """One name means a group of their own to ranks 0 and 1, and another to 2 and 3."""
    trace = read(
        *(pytorch_rank(rank, "1", [rank // 2 * 2, rank // 2 * 2 + 1]) for rank in range(4))
    )
    assert groups(trace) == {(0, 1): 1, (2, 3): 1, (0, 1, 2, 3): 1}
    assert (trace.total_bytes, trace.largest_bytes) == (2 * MIB + KIB, MIB)
    assert seconds(trace) == [42e-6] * RANKS
    assert trace.left_out == (
        "8 control dependencies on nodes that the file does not have",
        "4 communications on the CPU without a type or a peer, but for their time",
    )


def test_groups_that_a_compute_node_lists() -> None:
    """MLCommons' converter of 2024 wrote the node of groups so; JSON is that of its jsonizer."""
    files, texts = list[bytes](), list[bytes]()
    for first in (0, 0, 2, 2):
        listed = str([json.dumps([{"pg_name": "1", "ranks": [first, first + 1]}])])
        group = node(1, COMPUTE, ON_CPU, micros=3, inputs=listed, name=GROUPS)
        files.append(b"\x00" + group + collective(2, ALL_REDUCE, 8, attribute("pg_name", "1")))
        one = {"type": 7, "comm_type": 0, "comm_size": 8, "pg_name": "1"}
        inputs = {"values": listed}
        nodes = [{"id": 1, "name": GROUPS, "type": "COMP_NODE", "inputs": inputs}, one]
        texts.append(json.dumps(nodes).encode())
    for written in (files, texts):
        assert groups(read(*written)) == {(0, 1): 1, (2, 3): 1}
    assert seconds(read(*files)) == [3e-6] * RANKS


def test_control_dependencies_hold_nodes_up_unless_they_name_callers() -> None:
    """In the second trace the caller waits for what it calls, and would wait for itself."""
    called = collective(2, ALL_REDUCE, 8, control=[1])
    ordered = read(*everywhere(node(1, COMPUTE, micros=1), called))
    assert (ordered.after.lengths.reshape(RANKS, 2) == [0, 1]).all()
    assert ordered.left_out == ()
    trace = read(*everywhere(node(1, COMPUTE, data=[2], control=[9], micros=1), called))
    assert (trace.after.lengths.reshape(RANKS, 2) == [1, 0]).all()
    assert trace.left_out == ("8 control dependencies, with which nodes would wait for each other",)


def test_groups_of_the_same_ranks_are_told_apart() -> None:
    """Each rank has its own order between two groups, which other names do not change."""
    files = []
    for rank in range(RANKS):
        names = ("5", "9") if rank else ("tensor", "data")
        defined = pytorch_groups(*((name, [0, 1, 2, 3]) for name in names))
        sizes = [(names[0], KIB), (names[1], MIB)]
        calls = [
            collective(n, ALL_REDUCE, size, attribute("pg_name", name))
            for n, (name, size) in enumerate(sizes[:: -1 if rank else 1], start=3)
        ]
        files.append(b"\x00" + defined + b"".join(calls))
    assert sorted(one.size_bytes for one in read(*files).operations) == [KIB, MIB]


@pytest.mark.parametrize("more", [[0, 1, 2, 3], [0, 1]])
def test_two_lists_of_a_file_give_a_group_the_same_ranks(more: list[int]) -> None:
    lists = (
        node(id_, 1, inputs=str([json.dumps([{"pg_name": "5", "ranks": ranks}])]))
        for id_, ranks in enumerate(([0, 1, 2, 3], more))
    )
    files = everywhere(*lists, collective(3, ALL_REDUCE, 8, attribute("pg_name", "5")))
    if len(more) == RANKS:
        assert groups(read(*files)) == {(0, 1, 2, 3): 1}
    else:
        with pytest.raises(Malformed, match="group '5' is defined twice, with other ranks"):
            read(*files)


@pytest.mark.parametrize("listed", [[3, 2, 1, 0], [2, 3], []])
def test_a_group_that_files_list_differently_is_refused_in_these_words(listed: list[int]) -> None:
    call = collective(3, ALL_REDUCE, 8, attribute("pg_name", "5"))
    first, others = (pytorch_groups(("5", ranks)) for ranks in ([0, 1, 2, 3], listed or [0]))
    files = [b"\x00" + (others if rank > 1 and listed else b"") + call for rank in range(RANKS)]
    files[0] = b"\x00" + first + call
    with pytest.raises(Malformed, match="names '5' a group of other ranks, or in") as one:
        read(*files)
    assert one.value.hint == "list it alike in the files of all its ranks, or in none"


@pytest.mark.parametrize("size", [None, 0, 1, 2, RANKS])
def test_a_group_without_ranks_has_the_first_ones(size: int | None) -> None:
    """Or all, without a size."""
    listed: dict[str, Any] = {"pg_name": "1", "ranks": [], "group_size": size}
    nodes = (
        node(0, 1, inputs=str([json.dumps([listed])])),
        collective(1, ALL_REDUCE, 8, attribute("pg_name", "1")),
    )
    members = range(size or RANKS)
    files = [b"\x00" + b"".join(nodes[: 1 + (rank in members)]) for rank in range(RANKS)]
    assert groups(read(*files)) == {tuple(members): 1}


@pytest.mark.parametrize(
    ("inputs", "what"),
    [
        ('[\'[{"pg_name": "1", "ranks": [], "group_size": 5}]\']', "some of the ranks 0 to 3"),
        ('[\'[{"pg_name": "1", "ranks": [0, 1\']', "process groups must be a list"),
        ('[\'[{"pg_name": "1", "ranks": [0, 4]}]\']', "must have some of the ranks 0 to 3"),
        ("[{'pg_name': 1, 'ranks': [0]}, {'pg_name': 1, 'ranks': [1]}]", "'1' is defined twice"),
        ('[\'[{"pg_name": "1", "ranks": [1, 2]}]\']', "'1' does not have rank 0"),
        ("pg_name" + "(" * 10_000, "process groups must be a list"),
        ("[{'pg_name': 1, 'ranks': [1e999]}]", "process groups must be a list"),
        ("[]  # pg_name", "process groups must be a list"),
    ],
)
def test_wrong_process_groups_are_refused(inputs: str, what: str) -> None:
    nodes = (
        node(0, 1, inputs=inputs),
        collective(1, ALL_REDUCE, 8, attribute("pg_name", "1")),
    )
    with pytest.raises(Malformed, match=what):
        read(*everywhere(*nodes))


# The symbolic tensor graph: FLOPs and bytes in place of times, 32-bit attributes.
def symbolic_rank(rank: int) -> bytes:
    peer, int32 = rank ^ 2, "int32"
    here = attribute("is_cpu_op", 0, int32)
    size, tag = attribute("comm_size", 512), attribute("comm_tag", 3, int32)
    return b"".join(
        (
            metadata(schema="symbolic_tensor_network"),
            node(
                1, COMPUTE, attribute("num_ops", 989 * 10**9),
                attribute("tensor_size", 3350, "uint64"), attribute("op_type", "E"),
            ),
            node(
                2, COMPUTE, attribute("num_ops", 989),
                attribute("tensor_size", 3350 * 10**6, "uint64"), data=[1],
            ),
            collective(
                3, ALL_REDUCE, MIB, attribute("pg_name", str(10 + rank // 2)), here,
                attribute("involved_dim", [True] * 4), data=[2],
            ),
            node(4, SEND, size, tag, attribute("comm_dst", peer, int32), here, data=[3]),
            node(5, RECEIVE, size, tag, attribute("comm_src", peer, int32), here, data=[3]),
        )
    )  # fmt: skip


def test_the_symbolic_tensor_graph() -> None:
    trace = read(*map(symbolic_rank, range(RANKS)))
    assert groups(trace) == {(0, 1): 1, (2, 3): 1}
    sends = trace.kind == Action.SEND
    assert (trace.peer[sends] == [2, 3, 0, 1]).all()
    assert (trace.size_bytes[sends] == 512).all()
    assert (trace.modeled, seconds(trace)) == (8, [0.0] * RANKS)
    # A millisecond of FLOPs at the peak of an H100, and another one of its memory's bytes.
    assert seconds(trace.timed(989e12, 3.35e12)) == [2e-3] * RANKS


@pytest.mark.parametrize(("flops", "size", "took_s"), [(8, 0, 4), (0, 9, 3), (8, 9, 4), (2, 9, 3)])
def test_compute_takes_the_longer_time_of_its_flops_and_of_its_bytes(
    flops: int, size: int, took_s: float
) -> None:
    one = node(1, COMPUTE, attribute("num_ops", flops), attribute("tensor_size", size))
    trace = read(*everywhere(one))
    assert (trace.modeled, seconds(trace.timed(2.0, 3.0))) == (RANKS, [took_s] * RANKS)


def test_a_duration_comes_before_flops() -> None:
    one = node(1, COMPUTE, attribute("num_ops", 10**15), micros=9)
    trace = read(*everywhere(one)).timed(1.0, 1.0)
    assert (seconds(trace), trace.left_out) == (
        [9e-6] * RANKS,
        ("num_ops of 4 nodes, which have a duration",),
    )
    both = node(1, COMPUTE, attribute("runtime", 8), micros=9)
    trace = read(*everywhere(both))
    assert seconds(trace) == [9e-6] * RANKS
    assert trace.left_out == ("runtime of 4 nodes, whose duration_micros differs",)


def test_check_times_flops_by_the_platform(tmp_path: Path) -> None:
    for rank in range(RANKS):
        (tmp_path / f"step_rank{rank}.et").write_bytes(symbolic_rank(rank))
    rates = "hb_rate: 3600 Gbit/s, nic_rate: 400 Gbit/s"
    path = tmp_path / "x.yaml"
    for platform, said in (
        ("platform: dgx-h100", "compute: 8 nodes, up to 0.002 s a rank; 8 by FLOPs and"),
        (rates, "not replayed: compute of 8 nodes that have num_ops: the fabric names no pl"),
    ):
        fabric = f"fabric: {{domains: 2, domain_size: 2, {platform}, bandwidth_scale: 20000}}\n"
        path.write_text(f"{fabric}workloads:\n  - {{trace: ., size_scale: 1}}\n")
        with patch.object(replay, "Replayed", wraps=replay.Replayed) as built:
            details = load(path).cases[0].task.details
        assert built.call_count == 1
        assert any(line.startswith(said) for line in details), details


def test_a_legacy_group_of_the_symbolic_tensor_graph() -> None:
    files = [
        b"\x00" + collective(1, ALL_REDUCE, 8, attribute("comm_group", rank % 2, "int32"))
        for rank in range(RANKS)
    ]
    assert groups(read(*files)) == {(0, 2): 1, (1, 3): 1}


# Dimensions of the network: the GPUs of a domain, then the domains.
@pytest.mark.parametrize(
    ("involved", "expected"),
    [
        ([True, False], {(0, 1): 1, (2, 3): 1}),
        ([False, True], {(0, 2): 1, (1, 3): 1}),
        ([False, True, True, True], {(0, 2): 1, (1, 3): 1}),
        ([True, True], {(0, 1, 2, 3): 1}),
        ([True], {(0, 1, 2, 3): 1}),
        ([False, False, True], {(0,): 1, (1,): 1, (2,): 1, (3,): 1}),
    ],
)
@pytest.mark.parametrize("name", ["", "0"])
def test_dimensions_of_the_network(
    involved: list[bool], expected: dict[tuple[int, ...], int], name: str
) -> None:
    named = [attribute("pg_name", name)] if name else []
    one = collective(1, ALL_REDUCE, 8, attribute("involved_dim", involved), *named)
    assert groups(read(*everywhere(one))) == expected


@pytest.mark.parametrize(
    ("given", "needs"),
    [
        (NO_DEFAULTS, "a network has two: the ranks of a domain"),
        (Defaults(ranks=3, domain_size=3), "its ranks must be a multiple of domain_size, 3"),
    ],
)
def test_dimensions_that_the_network_does_not_have_are_refused(given: Defaults, needs: str) -> None:
    one = collective(1, ALL_REDUCE, 8, attribute("involved_dim", [True, False]))
    with pytest.raises(Malformed, match=f"has 2 dimensions for 4 ranks; {needs}"):
        read(*everywhere(one), given=given)


@pytest.mark.parametrize("kind", [8, 10, 12, 14])
def test_dimensions_may_be_listed_as_integers(kind: int) -> None:
    def files(first: int) -> list[bytes]:
        listed = content(
            10, content(1, "involved_dim") + content(kind, content(1, bytes([first, 0])))
        )
        return everywhere(collective(1, ALL_REDUCE, 8, listed))

    assert groups(read(*files(1))) == {(0, 1): 1, (2, 3): 1}
    with pytest.raises(Malformed, match="involved_dim must be a list of truth values"):
        read(*files(2))


@given(st.integers(1, 5), st.integers(1, 5), st.tuples(st.booleans(), st.booleans()))
def test_dimensions_cut_the_ranks_into_groups(
    domains: int, size: int, involved: tuple[bool, bool]
) -> None:
    one = b"\x00" + collective(1, ALL_REDUCE, 8, attribute("involved_dim", involved))
    found = trace_in([one] * domains * size, Defaults(domains * size, None, size)).operations
    assert sorted(rank for operation in found for rank in operation.ranks) == [
        *range(domains * size)
    ]
    for ranks in (operation.ranks for operation in found):
        assert len({rank // size for rank in ranks}) == (domains if involved[1] else 1)
        assert len({rank % size for rank in ranks}) == (size if involved[0] else 1)


def test_a_process_group_of_some_ranks_overrules_dimensions() -> None:
    """The group that a file lists, or that all ranks name which name it, on any network."""

    def files(involved: list[bool], *groups: bytes) -> list[bytes]:
        dims = attribute("involved_dim", involved)
        return [
            b"\x00"
            + b"".join(groups)
            + collective(1, ALL_REDUCE, 8, attribute("pg_name", str(rank // 2)), dims)
            for rank in range(RANKS)
        ]

    listed = pytorch_groups(("0", [0, 1]), ("1", [2, 3]))
    what = "involved_dim of 4 operations, whose groups have other ranks here"
    for given_groups in ((), (listed,)):
        for dims, network, told in (
            ([True, False], FABRIC, ()),
            ([True, True], Defaults(RANKS), ()),
            ([False, True], FABRIC, (what,)),
            ([True, False], Defaults(RANKS, domain_size=1), (what,)),
            ([True, False], Defaults(RANKS, domain_size=3), (what,)),
            ([False], FABRIC, (what,)),
        ):
            trace = read(*files(dims, *given_groups), given=network)
            assert (groups(trace), trace.left_out) == ({(0, 1): 1, (2, 3): 1}, told)


def test_two_names_of_a_group_are_refused() -> None:
    number_ = attribute("comm_group", 1, "int32")
    same = collective(1, ALL_REDUCE, 8, attribute("pg_name", "1"), number_)
    assert groups(read(*everywhere(same))) == {(0, 1, 2, 3): 1}
    other = collective(1, ALL_REDUCE, 8, attribute("pg_name", "2"), number_)
    with pytest.raises(Malformed, match="pg_name '2' and comm_group 1 name two groups"):
        read(*everywhere(other))


# ASTRA-sim's converter of MSCCL: chunks, or their bytes, and reductions without a duration.
def msccl_rank(rank: int, *size: bytes) -> bytes:
    step = attribute("comm_tag", 0, "int32"), attribute("tb_id", 0, "int32"), *size
    to = attribute("comm_dst", (rank + 1) % RANKS, "int32"), attribute("comm_type", SEND), *step
    of = attribute("comm_src", (rank - 1) % RANKS, "int32"), attribute("comm_type", RECEIVE), *step
    return b"".join(
        (
            metadata(schema="1.0.2-chakra.0.0.4", input_file="<algo/>", collective="allreduce"),
            node(0, SEND, *to),
            node(1, RECEIVE, *of),
            node(2, COMPUTE, data=[1]),
            node(3, SEND, *to, data=[2]),
            node(4, RECEIVE, *of),
        )
    )


CHUNKS = attribute("msg_chunk_cnt", 2, "int32"), attribute("total_chunk_cnt", 8, "int32")


@pytest.mark.parametrize(
    ("size", "given"),
    [
        ((attribute("comm_size", 256),), FABRIC),
        (CHUNKS, Defaults(ranks=RANKS, size_bytes=1024)),
    ],
)
def test_the_msccl_converter_of_astra_sim(size: tuple[bytes, ...], given: Defaults) -> None:
    trace = read(*(msccl_rank(rank, *size) for rank in range(RANKS)), given=given)
    assert (trace.total_bytes, trace.operations) == (RANKS * 2 * 256, ())
    assert trace.left_out == (
        "compute of 4 nodes without a duration and without num_ops of a GPU",
        "attribute 'tb_id' of 16 nodes",
    )


def test_more_chunks_than_a_buffer_has_are_refused() -> None:
    chunks = attribute("msg_chunk_cnt", 9, "int32"), attribute("total_chunk_cnt", 8, "int32")
    with pytest.raises(Malformed, match="msg_chunk_cnt must be at most total_chunk_cnt"):
        read(*(msccl_rank(rank, *chunks) for rank in range(RANKS)), given=Defaults(RANKS, 1024))


def test_chunks_need_a_size(tmp_path: Path) -> None:
    for rank in range(RANKS):
        packed = gzip.compress(msccl_rank(rank, *CHUNKS))
        (tmp_path / f"ring_{rank}.et.gz").write_bytes(packed)
    path = tmp_path / "x.yaml"
    fabric = "fabric: {domains: 2, domain_size: 2, platform: dgx-h100, bandwidth_scale: 20000}\n"
    path.write_text(f"{fabric}workloads:\n  - {{trace: ring_0.et.gz}}\n")
    with pytest.raises(InputError, match=r"ring_0\.et\.gz: byte \d+: send has chunks, and no comm"):
        load(path)
    task = load(path, ["workloads.0.size=8 MiB"]).cases[0].task
    assert task.size_bytes == RANKS * 2 * 2 * MIB


# The container and its files.
CONTAINERS = {
    "a version": metadata("0.0.4"),
    "a version that is no number": metadata("chakra-next"),
    "both": metadata("0.0.4", schema="x"),
    "more than is looked at": metadata(schema="x" * 100_000),
    "an empty message": b"\x00",
}


@pytest.mark.parametrize("first", CONTAINERS.values(), ids=CONTAINERS)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_all_metadata_are_known(first: bytes, pack: Callable[[bytes], bytes]) -> None:
    files = [pack(one) for one in everywhere(collective(1, ALL_REDUCE, 8), first=first)]
    assert groups(read(*files)) == {(0, 1, 2, 3): 1}


@given(st.text())
def test_no_text_is_taken_for_a_container(text: str) -> None:
    if not any(ord(letter) < 9 or 13 < ord(letter) < 32 for letter in text):
        assert not is_chakra(text.encode())


@pytest.mark.parametrize(
    ("old", "what"),
    [
        (framed(number(1, 1) + content(2, "x")), "begins with a node, without metadata"),
        (node(0, COMPUTE), "begins with a node, without metadata"),
        (framed(number(3, COMPUTE)), "begins with a node, without metadata"),
        (b"\x00" + framed(number(1, 1) + content(11, b"")), "has a field 11, as in schemas before"),
    ],
)
def test_older_schemas_are_refused_by_name(old: bytes, what: str) -> None:
    with pytest.raises(Malformed, match=what):
        read(old)


@pytest.mark.parametrize(
    ("one", "what"),
    [
        (node(0, 8), "unknown type of node; types are 1 to 7"),
        (collective(0, 77, 8), r"unknown collective \(comm_type 77\); known: 0 to 9"),
        (collective(0, REDUCE, 8, attribute("comm_src", 4)), "comm_src 4 must be one of the ranks"),
        (node(0, COLLECTIVE, attribute("comm_size", 8)), "collective without comm_type"),
        (collective(0, ALL_REDUCE, 8, data=[77]), "data dependency on unknown node 77"),
        (
            node(0, COLLECTIVE, attribute("comm_type", "ALL_REDUCE")),
            "comm_type must be a whole number",
        ),
        (
            collective(0, ALL_REDUCE, 8, attribute("involved_dim", [])),
            "involved_dim is empty; leave it out for all ranks",
        ),
        (
            collective(0, ALL_REDUCE, 8, attribute("involved_dim", 3)),
            "involved_dim must be a list of truth values",
        ),
    ],
)
def test_what_cannot_be_replayed_is_refused(one: bytes, what: str) -> None:
    with pytest.raises(Malformed, match=what):
        read(*everywhere(one))


@pytest.mark.parametrize(
    ("source", "room", "what"),
    [
        (0, 8, ""),
        (0, 16, ""),
        (1, 8, "comm_src must be the rank of the file, got 1"),
        (0, 7, "receives 7 bytes of the 8 that rank 0 sends at byte 2 of its file"),
        (0, 0, "receives 0 bytes of the 8"),
        (0, 2**64 - 1, r"comm_size must be 0 to \d+ bytes, got -1"),
    ],
)
def test_both_ends_of_a_message_agree(source: int, room: int, what: str) -> None:
    def end(type_: int, size: int, *ranks: int) -> bytes:
        names = zip(("comm_src", "comm_dst"), ranks, strict=True)
        of = (attribute(name, rank) for name, rank in names)
        return b"\x00" + node(0, type_, *of, attribute("comm_size", size))

    files = end(SEND, 8, source, 1), end(RECEIVE, room, 0, 1)
    with pytest.raises(Malformed, match=what) if what else nullcontext():
        trace = read(*files, given=NO_DEFAULTS)
        told = ("room of 1 receive for more bytes than are sent",) * (room > 8)
        assert (trace.total_bytes, trace.left_out) == (8, told)


def test_a_tag_that_means_any_is_refused() -> None:
    def end(type_: int, peer: str, rank: int) -> bytes:
        of = attribute(peer, rank), attribute("comm_size", 8), attribute("comm_tag", -1)
        return b"\x00" + node(0, type_, *of)

    with pytest.raises(Malformed, match=r"comm_tag must be 0 or more: .* not any \(-1\), got -1"):
        read(end(SEND, "comm_dst", 1), end(RECEIVE, "comm_src", 0), given=NO_DEFAULTS)


@pytest.mark.parametrize(
    ("one", "what"),
    [
        (attribute("comm_size", -5), "comm_size must be 0 to [0-9]+ bytes, got -5"),
        (attribute("comm_size", -1), "comm_size must be 0 to [0-9]+ bytes, got -1"),
        (attribute("comm_size", 2**64 - 1, "uint64"), "comm_size must be below 2^63, got 18446744"),
        (attribute("comm_size", -(2**63)), "comm_size must be below 2^63, got 9223372036854775808"),
        (attribute("comm_size", 2**62), "comm_size must be 0 to [0-9]+ bytes, got 4611686018427"),
        (attribute("tensor_size", -1), "tensor_size must be 0 or more, got -1"),
        (number(7, 2**64 - 1), "duration_micros must be below 2^63, got 18446744073709551615"),
        (attribute("comm_size", 8) * 2, "duplicate comm_size of a node"),
    ],
)
def test_numbers_out_of_bounds_are_refused_with_their_value(one: bytes, what: str) -> None:
    wrong = node(1, COLLECTIVE, attribute("comm_type", ALL_REDUCE), one)
    with pytest.raises(Malformed, match=what.replace("^", r"\^")) as refused:
        read(*everywhere(wrong))
    assert (refused.value.file, refused.value.place[:6]) == (0, ": byte")


def test_dimensions_that_are_not_replayed_are_told() -> None:
    for involved in ([True, False, True], [False, True, False]):
        one = collective(1, ALL_REDUCE, 8, attribute("involved_dim", involved))
        told = ("involved_dim of 4 operations beyond the network's two dimensions",)
        assert read(*everywhere(one)).left_out == told


@given(st.sampled_from(sorted(FIXED)), st.integers(0, 2**24))
def test_numbers_have_any_kind_of_the_schema(kind: str, size_bytes: int) -> None:
    known = attribute("comm_type", ALL_REDUCE), fixed("comm_size", size_bytes, kind)
    assert read(*everywhere(node(1, COLLECTIVE, *known))).operations[0].size_bytes == size_bytes


@pytest.mark.parametrize("micros", [12.5, float("inf"), float("nan"), 2.0**63])
def test_a_number_that_is_not_whole_is_refused(micros: float) -> None:
    with pytest.raises(Malformed, match="runtime must be a whole number"):
        read(*everywhere(node(1, COMPUTE, fixed("runtime", micros, "double"))))


@pytest.mark.parametrize("lasted", [number(7, 4), attribute("runtime", 4)])
def test_a_recorded_time_of_communication_is_told(lasted: bytes) -> None:
    told = ("durations of 4 communications, which the network decides",)
    assert read(*everywhere(collective(1, ALL_REDUCE, 8, lasted))).left_out == told


def test_what_else_names_a_size_or_a_group_of_a_message_is_told() -> None:
    def end(type_: int, peer: str, rank: int, *more: bytes) -> bytes:
        return b"\x00" + node(0, type_, attribute(peer, rank), attribute("comm_size", 8), *more)

    group, size = attribute("pg_name", "1"), attribute("tensor_size", 9)
    files = end(SEND, "comm_dst", 1, group, size), end(RECEIVE, "comm_src", 0, group)
    trace = read(*files, given=NO_DEFAULTS)
    assert (trace.total_bytes, trace.left_out) == (
        8,
        (
            "tensor_size of 1 communication, whose comm_size differs",
            "groups of 2 messages, whose peers are ranks",
        ),
    )
    barrier = collective(1, BARRIER, 9, size)
    assert read(*everywhere(barrier)).left_out == ()


def test_the_other_end_of_a_collective_operation_is_told() -> None:
    one = collective(1, REDUCE, 8, attribute("comm_src", 0), attribute("comm_dst", 3))
    assert read(*everywhere(one)).left_out == ("comm_dst of 4 collective operations",)


def test_attributes_that_are_not_read_are_told() -> None:
    started = number(6, 9)
    nodes = (
        node(0, 1, attribute("chunks", 2)),
        node(1, COMPUTE, attribute("tid", 3), attribute("tensor_loc", 0, "int32"), started),
        node(2, COMPUTE, attribute("op_type", "E"), attribute("chunks", "2"), number(6, 0)),
        collective(3, ALL_REDUCE, 8, attribute("comm_tag", 5), started, number(7, 4)),
    )
    assert read(*everywhere(*nodes)).left_out[1:] == (
        "durations of 4 communications, which the network decides",
        "tags of 4 collective operations, in the order of their group",
        "attribute 'chunks' of 4 nodes",
        "attribute 'start_time_micros' of 8 nodes",
        "attribute 'tensor_loc' of 4 nodes",
    )


def test_kernels_of_a_stream_follow_each_other() -> None:
    """In the order of their ids, if nothing says otherwise; operators of the CPU do not."""

    def left(id_: int, stream: int, *on: bytes, data: list[int]) -> bytes:
        return node(id_, COMPUTE, attribute("stream", stream), *on, micros=5, data=data)

    launches = left(1, 0, ON_CPU, data=[]) + left(2, 0, ON_CPU, data=[])
    kernels = left(5, 7, ON_GPU, data=[2]), left(4, 7, data=[1]), left(6, 9, ON_GPU, data=[1])
    trace = read(*everywhere(launches, *kernels))
    assert trace.after_lists[:5] == ((), (), (1, 3), (0,), (0,))
    around = read(*everywhere(launches, left(4, 7, data=[5]), left(5, 7, data=[2])))
    assert around.after_lists[:4] == ((), (), (3,), (1,))
    what = "4 orders of two kernels of a stream, with which nodes would wait for each other"
    assert around.left_out == (what,)


def test_compute_without_a_stream_takes_turns_on_the_gpu_and_on_the_cpu() -> None:
    operators = node(1, COMPUTE, ON_CPU, micros=5), node(2, COMPUTE, ON_GPU, micros=5)
    kernel = node(3, COMPUTE, attribute("stream", 7), ON_GPU, micros=5)
    trace = read(*everywhere(*operators, node(4, COMPUTE, micros=5), kernel))
    assert trace.processor is not None
    assert trace.processor[:4].tolist() == [1, 0, 0, NONE]
    assert trace.turn is not None
    assert trace.turn[:4].tolist() == [1, 2, 4, 3]


def test_priorities_are_told() -> None:
    for priority in (2, -2):
        one = collective(0, ALL_REDUCE, 8, attribute("comm_priority", priority, "int32"))
        assert read(*everywhere(one)).left_out == ("priorities of 4 communications",)


@pytest.mark.parametrize(
    "name", ["trace.{}.et", "trace_rank{}.et", "trace_{}.et", "{}.et", "a.1-rank{}.et.gz"]
)
def test_files_are_named_in_many_ways(tmp_path: Path, name: str) -> None:
    for rank in range(12):
        (tmp_path / name.format(rank)).write_bytes(b"\x00" + collective(1, ALL_REDUCE, 8))
    (tmp_path / "groups_8.json").write_text("{}")
    paths = [tmp_path, tmp_path / name.format(11)]
    # ASTRA-sim is given what comes before the rank.
    paths += [tmp_path / "trace"] * (name == "trace.{}.et")
    for path in paths:
        assert read_trace(path).ranks == 12


def bare_json(rank: int) -> str:
    """A file in JSON that is a list of nodes."""
    return json.dumps(json.loads(symbolic_json(rank))["nodes"], indent=2)


@pytest.mark.parametrize("write", [jsonized, fed, symbolic_json, bare_json])
def test_json(tmp_path: Path, write: Callable[[int], str]) -> None:
    for rank in range(RANKS):
        (tmp_path / f"w.{rank}.json").write_text(write(rank))
    for path in (tmp_path, tmp_path / "w.3.json"):
        trace = read_trace(path, FABRIC)
        assert groups(trace) == {(0, 2): 1, (1, 3): 1}
        assert {(one.collective, one.size_bytes) for one in trace.operations} == {
            (Collective.REDUCE_SCATTER, 1024)
        }
        assert seconds(trace) == [5e-6] * RANKS
        assert (trace.after.lengths.reshape(RANKS, 2) == [0, 1]).all()
        assert trace.left_out == ("4 control dependencies on nodes that the file does not have",)
    packed = [gzip.compress(write(rank).encode()) for rank in range(RANKS)]
    assert groups(read(*packed)) == {(0, 2): 1, (1, 3): 1}


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        (
            '{"workload_graph": [{"Id": 1, "NodeType": 4, "runtime": "x"}]}',
            ": node 0",
            "runtime mu",
        ),
        ('{"workload_graph": [{"Id": 1, "NodeType": 9}]}', ": node 0", "unknown type of node"),
        ('{"workload_graph": [{"NodeType": 4, "data_deps": 3}]}', ": node 0", "must be a list"),
        ('{"workload_graph": [3]}', ":1", "must be objects"),
        ('{"version": "1"}\n{"id": \n', ":2", "is not JSON: Expecting value"),
        ('{"version": "1"}{"type": 4, "runtime": 1, "runtime": 2}', ":1", "duplicate key"),
        ('{"nodes": [{"type": 4, "node_type": 7}]}', ": node 0", "duplicate node_type of a node"),
        ('{"nodes": [{"node_type": 4, "runtime": true}]}', ": node 0", "got 'True'"),
        ('{"nodes": [{"node_type": 4, "attr": {}}]}', ": node 0", "attr must be a list of objects"),
        ('{"nodes": [{"node_type": 4, "id": 18446744073709551615}]}', ": node 0", "id must be a "),
        ('{"nodes": [{"node_type": 4, "num_ops": 2.5}]}', ": node 0", "whole number .* got '2.5'"),
        ('{"nodes": [{"node_type": 4, "runtime": -2.5}]}', ": node 0", "or more, got -2.5"),
        ('{"nodes": [{"node_type": 4, "runtime": Infinity}]}', ": node 0", "got 'inf'"),
        ('{"nodes": [{"node_type": 4, "runtime": -9223372036854775808.0}]}', ": node 0", "64 bits"),
        ('{"nodes": [{"node_type": 4, "runtime": 1e12}]}', ": node 0", "at most a day"),
        ('{"nodes": [{"node_type": 4}]}{"node_type": 4}', ":1", "nothing may follow"),
        ('{"nodes": [{"type": 7, "involved_dim": [2]}]}', ": node 0", "must be 0 or 1, got '2'"),
        ('{"version": "1"}[]', ":1", "must be objects"),
        ('[{"node_type": 4}][]', ":1", "must be objects"),
        ('[{"node_type": 4, "ctrl_deps": 3}]', ": node 0", "must be a list"),
        ('{"data_deps":' + "[" * 100_000, ":1", "is not JSON"),
        ('{"attr": ' + "9" * 5000 + "}", ":1", "is not JSON"),
    ],
)
def test_wrong_json_is_refused(text: str, place: str, what: str) -> None:
    with pytest.raises(Malformed, match=what) as refused:
        read(text.encode())
    assert refused.value.place == place


def test_json_is_known_whatever_comes_before_its_nodes() -> None:
    one = {"name": "x" * 5000, "type": 7, "comm_type": 0, "comm_size": 8}
    for written in ({"made_by": "x" * 5000, "workload_graph": [one]}, [one]):
        text = json.dumps(written)
        assert groups(read(*[text.encode()] * RANKS)) == {(0, 1, 2, 3): 1}


def test_null_in_json_is_a_field_that_is_not_set() -> None:
    """https://protobuf.dev/programming-guides/json: null is an accepted value of all fields."""
    one = {"type": 7, "comm_type": 0, "comm_size": 8, "data_deps": None, "pg_name": None}
    empty = {"id": 1, "type": 4, "runtime": None, "attr": None}
    text = json.dumps([{**one, "attr": [{"name": "comm_tag", "int64Val": None}]}, empty])
    assert groups(read(*[text.encode()] * RANKS)) == {(0, 1, 2, 3): 1}


@pytest.mark.parametrize("name", ["runtime", "duration_micros"])
def test_times_in_json_may_have_fractions(name: str) -> None:
    text = json.dumps([{"node_type": 4, name: 2.5}])
    assert seconds(read(*[text.encode()] * RANKS)) == [2.5e-6] * RANKS


def test_json_with_numbers_of_types_is_known_by_its_communications() -> None:
    attributes = [{"name": "comm_type", "int64_val": 0}, {"name": "comm_size", "int64_val": 8.0}]
    text = json.dumps([{"id": 2, "type": 7, "attr": attributes}])
    assert groups(read(*[text.encode()] * RANKS)) == {(0, 1, 2, 3): 1}


@pytest.mark.parametrize(
    ("gpus", "told"), [(RANKS, ()), (str(RANKS), ()), (8, ("ngpus 8: the files are of 4 ranks",))]
)
def test_json_of_more_ranks_than_files_is_told(gpus: int | str, told: tuple[str, ...]) -> None:
    one = {"Id": 1, "NodeType": 7, "comm_type": 0, "comm_size": 8}
    text = json.dumps({"workload_graph": [one], "ngpus": gpus})
    assert read(*[text.encode()] * RANKS).left_out == told


def test_json_without_metadata_begins_with_a_node() -> None:
    one = {"node_type": 7, "comm_type": 0, "comm_size": 8}
    groups_ = {"type": 1, "id": 9, "inputs": ['[{"pg_name": "a", "ranks": [0, 1]}]']}
    files = [
        json.dumps(groups_ if rank < 2 else {"type": 1})
        + json.dumps({**one, "id": 1, "pg_name": "a" if rank < 2 else "b"})
        for rank in range(RANKS)
    ]
    assert groups(read(*(text.encode() for text in files))) == {(0, 1): 1, (2, 3): 1}


def test_what_of_json_is_not_read_is_told() -> None:
    one = {
        "node_type": 7, "name": "x", "comm_type": 0, "comm_size": 8, "startTimeMicros": "9",
        "attr": [{"name": "tensor_loc", "int32Val": 1}, {"name": "fw_parent", "int64Val": 1}],
    }  # fmt: skip
    trace = read(*[json.dumps([one]).encode()] * RANKS)
    assert trace.left_out == (
        "attribute 'startTimeMicros' of 4 nodes",
        "attribute 'tensor_loc' of 4 nodes",
    )


def test_an_unknown_name_of_an_enumeration_in_json_is_told_with_the_known_ones() -> None:
    text = json.dumps([{"id": 2, "node_type": 7, "comm_type": "ALL_TO_ALL_V", "comm_size": 8}])
    with pytest.raises(Malformed, match=r"comm_type must be .* got 'ALL_TO_ALL_V'") as one:
        read(*[text.encode()] * RANKS)
    assert one.value.hint.startswith("known names: allreduce, reduce, allgather")


def test_json_is_bounded() -> None:
    packed = gzip.compress(b'{"version": "1"}' + b" " * 1000)
    with (
        patch.object(chakra_json, "MOST_JSON_BYTES", 1000),
        pytest.raises(Malformed, match="must have at most 1000 bytes"),
    ):
        read(packed)


def test_a_file_in_json_that_is_no_member_of_a_set_is_alone(tmp_path: Path) -> None:
    (tmp_path / "plan_8.json").write_text(fed(0))
    assert files_of(tmp_path / "plan_8.json") == [tmp_path / "plan_8.json"]
