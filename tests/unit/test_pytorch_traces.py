"""Traces that PyTorch records: Kineto's, with times, and execution traces, without."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.errors import InputError
from model.fabric.job_grid import JobGrid
from model.workload.trace import Action, Operation, Trace
from model.workload.transfers.collective import Collective
from tests.unit.pytorch_files import (
    Event,
    attributes,
    call,
    communication,
    kernel,
    kineto,
    operators,
)
from tests.unit.test_traces import damaged, read_or_refused
from tests.unit.traces import same
from traffic_gen.traces.formats.kineto import BY_GPU
from traffic_gen.traces.formats.nodes import Defaults, Malformed
from traffic_gen.traces.reading import read_trace, trace_in
from traffic_gen.traces.replay import Replay

BOTH = (0, 1)
LACKS_ORDER = (
    "dependencies of kernels, which Kineto lacks: each waits for what ended before it began"
)


def recorded(*events: Event, ranks: int = 2, **info: object) -> Trace:
    """The trace of ranks that record the same."""
    return trace_in([kineto(rank, *events, ranks=ranks, **info) for rank in range(ranks)])


def executed(*nodes: Any, ranks: int = 2, **options: Any) -> Trace:
    return trace_in([operators(*nodes, **options)] * ranks)


def finish_s(trace: Trace, recorded_s: float) -> float:
    """When the last node of rank 0 ends if each collective operation takes as long as recorded."""
    ends: dict[int, float] = {}
    for node in trace.order:
        lasts = recorded_s if trace.kind[node] == Action.COLLECTIVE else trace.seconds[node]
        ends[node] = max([ends[before] for before in trace.after_lists[node]], default=0.0) + lasts
    return max(end for node, end in ends.items() if trace.rank[node] == 0)


def waited_for(trace: Trace) -> dict[int, set[int]]:
    """All that each node of rank 0 waits for, also by way of others."""
    before: dict[int, set[int]] = {}
    for node in np.flatnonzero(trace.rank == 0).tolist():
        direct = set(trace.after_lists[node])
        before[node] = direct.union(*(before[one] for one in direct))
    return before


def sent(trace: Trace) -> dict[tuple[int, int], int]:
    sends = np.flatnonzero(trace.kind == Action.SEND).tolist()
    return {(int(trace.rank[n]), int(trace.peer[n])): int(trace.size_bytes[n]) for n in sends}


# Kineto: kernels compute and communicate.
def test_a_step_of_data_parallel_training() -> None:
    trace = recorded(
        kernel(1000.25, 100),
        communication(1050.25, 60, "allreduce", 1024),
        kernel(1100.25, 5),
        kernel(1130.25, 20, "Memcpy DtoD"),
        ranks=2,
    )
    assert trace.format == "Kineto"
    assert trace.operations == (Operation(Collective.ALL_REDUCE, 4096, BOTH),)
    assert trace.left_out == (LACKS_ORDER,)
    of_rank = trace.rank == 0
    # Before the operation, while it runs, and after it, with the time in which nothing ran.
    assert trace.seconds[of_rank & (trace.seconds > 0)].tolist() == [50e-6, 55e-6, 40e-6]
    assert finish_s(trace, 60e-6) == pytest.approx(150e-6)
    assert finish_s(trace, 1.0) == pytest.approx(1 + 90e-6)


def test_a_communication_that_takes_no_time_is_waited_for() -> None:
    trace = recorded(communication(10, 0, "allreduce", 8), kernel(20, 5))
    (operation,) = np.flatnonzero((trace.rank == 0) & (trace.operation == 0))
    computing = np.flatnonzero((trace.rank == 0) & (trace.seconds > 0)).tolist()
    assert operation in waited_for(trace)[computing[-1]]


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 30)), max_size=6),
    st.integers(0, 999),
)
def test_with_the_recorded_times_of_communication_a_trace_takes_its_recorded_time(
    gaps: list[tuple[int, int]], computing: list[tuple[int, int]], fraction: int
) -> None:
    """One communication at a time takes 50 us; computing is anywhere."""
    begins = np.cumsum([gap + 50 for gap, _ in gaps]).tolist()
    shift = 1e9 + fraction / 1000
    events = [communication(shift + begin, 50, "allreduce", 8) for begin in begins]
    events += [kernel(shift + begin, lasts) for begin, lasts in computing]
    first = min([begins[0], *(begin for begin, _ in computing)])
    last = max([begins[-1] + 50, *(begin + lasts for begin, lasts in computing)])
    assert finish_s(recorded(*events), 50e-6) == pytest.approx((last - first) / 1e6, abs=2e-6)


def test_what_a_kernel_lacks_its_call_on_the_cpu_has() -> None:
    on_cpu = {
        "cat": "cpu_op",
        "name": "record_param_comms",
        "args": {**attributes("broadcast", 8), "Rank": 1, "External id": 7},
    }
    waits = {**on_cpu, "args": {**attributes("wait", 0), "External id": 8}}
    lost = {**on_cpu, "args": {**attributes("allreduce", 8), "External id": 9}}
    kernel_ = communication(0, 5, "broadcast", 8)
    kernel_["args"]["External id"] = 7
    trace = recorded(on_cpu, waits, lost, kernel_)
    assert trace.operations == (Operation(Collective.BROADCAST, 32, (1, 0)),)
    said = "2 communications on the CPU that no kernel of their file executes"
    assert trace.left_out == (LACKS_ORDER, said)
    rootless = recorded(kernel_)
    assert rootless.operations[0].ranks == BOTH
    assert rootless.left_out[1].startswith("roots of 1 operation, which the files lack")


def test_communications_of_processors_are_told() -> None:
    """Gloo names a range of the program, without a size, beside the kernels of NCCL."""
    gloo = {"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "ts": 1, "dur": 9}
    trace = recorded(communication(0, 9, "allreduce", 2), gloo, gloo)
    assert "4 communications of gloo, of which Kineto has no size" in trace.left_out
    assert len(trace.operations) == 1


def test_copies_between_gpus_without_nccl_are_told() -> None:
    copy = kernel(0, 5, "Memcpy PtoP (Device -> Device)", bytes=1000) | {"cat": "gpu_memcpy"}
    puts = kernel(5, 5, "void nvshmemi_put<1>"), kernel(10, 5, "Memcpy HtoD")
    trace = recorded(copy, *puts, communication(15, 9, "allreduce", 2))
    assert BY_GPU.format(4) in trace.left_out


@pytest.mark.parametrize(
    "name",
    [
        "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)",
        "two_shot_all_reduce_kernel_inplace",
        "multimem_one_shot_reduce_kernel",
        "void tensorrt_llm::kernels::twoShotAllReduceKernel<half, 8>()",
        "userbuffers_fp16_sum_inplace_gpu_rr_ag",
        "mscclpp::ExecutionKernel::executionKernel",
    ],
)
def test_kernels_that_communicate_without_nccl_are_told(name: str) -> None:
    both = kernel(0, 5, name), kernel(5, 5, "index_gather"), kernel(10, 5, "gemm")
    assert BY_GPU.format(2) in recorded(*both).left_out


@pytest.mark.parametrize("name", ["rcclGenericKernel", "mscclKernel_Sum_half_LL", "ncclDevKernel"])
def test_kernels_of_nccl_and_rccl_need_their_call(name: str) -> None:
    with pytest.raises(Malformed, match="kernel of NCCL without 'Collective name'"):
        recorded(kernel(0, 5, name))


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("allreduce", 16),
        ("all_gather", 32),
        ("gather", 32),
        ("_reduce_scatter_base", 8),
        ("scatter", 8),
        ("all_to_all", 16),
    ],
)
def test_an_output_of_another_size_than_its_input_has_is_told(name: str, right: int) -> None:
    told = "out_msg_nelems of 2 collective operations, which in_msg_nelems contradicts"
    for elements in (right, right + 1):
        operator = executed(call(name, 16, out_msg_nelems=elements))
        sent = recorded(communication(0, 9, name, 16, **{"Out msg nelems": elements}))
        assert {told in one.left_out for one in (operator, sent)} == {elements != right}


def reordered(written: bytes) -> bytes:
    """The same file, with thousands of bytes before the keys that tell its format."""
    last = ("traceEvents", "nodes", "schema", "schemaVersion")
    keys = {"note": "x" * 5000, **json.loads(written)}
    return json.dumps(dict(sorted(keys.items(), key=lambda one: one[0] in last))).encode()


def test_a_format_is_known_wherever_its_keys_are() -> None:
    for files in (
        [kineto(rank, communication(0, 9, "allreduce", 2)) for rank in BOTH],
        [operators(*[call("allreduce", 2)] * 20)] * 2,
    ):
        other = trace_in(list(map(reordered, files)))
        assert same(other, trace_in(files))
        assert other.format == trace_in(files).format


def test_groups_of_kineto_are_listed_shortened_or_in_steps() -> None:
    pairs = ("[0, 2]", "[1, 3]")
    files = [
        kineto(rank, communication(0, 5, "allreduce", 8, ranks=pairs[rank % 2]), ranks=4)
        for rank in range(4)
    ]
    assert {one.ranks for one in trace_in(files).operations} == {(0, 2), (1, 3)}
    shortened = communication(0, 5, "allreduce", 8, ranks="[0, ..., 4]")
    shortened["args"].update({"Group size": 3, "Process Group Name": "9"})
    steps = {**shortened, "args": {**shortened["args"], "Global rank start": 0}}
    steps["args"]["Global rank stride"] = 2
    evens = [kineto(rank, steps, ranks=5) for rank in (0, 2, 4)]
    files = [evens[0], kineto(1, ranks=5), evens[1], kineto(3, ranks=5), evens[2]]
    assert trace_in(files).operations[0].ranks == (0, 2, 4)
    listed = [{"pg_name": "9", "ranks": "[0, 1, 4]"}]
    of_three = [kineto(rank, shortened, ranks=5, pg_config=listed) for rank in (0, 1, 4)]
    files = [*of_three[:2], kineto(2, ranks=5), kineto(3, ranks=5), of_three[2]]
    assert trace_in(files).operations[0].ranks == (0, 1, 4)


# Execution traces: what PARAM replays, in the order of its calls.
def test_an_execution_trace_has_the_bytes_and_no_times() -> None:
    nodes = call("allreduce", 1024), call("_allgather_base", 8, dtype="BFloat16", request=1)
    trace = executed(*nodes)
    assert trace.format == "execution trace of PyTorch"
    assert trace.operations == (
        Operation(Collective.ALL_REDUCE, 4096, BOTH),
        Operation(Collective.ALL_GATHER, 32, BOTH),
    )
    assert not trace.seconds.any()
    assert trace.left_out == ("2 operators: execution traces have no times",)


@pytest.mark.parametrize(
    ("name", "expected", "size_bytes"),
    [
        ("allreduce_coalesced", Collective.ALL_REDUCE, 64),
        ("all_gather", Collective.ALL_GATHER, 128),
        ("allgather_into_tensor_coalesced", Collective.ALL_GATHER, 128),
        ("_reduce_scatter_base", Collective.REDUCE_SCATTER, 64),
        ("reduce_scatter_tensor_coalesced", Collective.REDUCE_SCATTER, 64),
        ("_broadcast_oop", Collective.BROADCAST, 64),
        ("_reduce_oop", Collective.REDUCE, 64),
        ("all_to_all", Collective.ALL_TO_ALL, 64),
        ("gather", Collective.GATHER, 128),
        ("scatter", Collective.SCATTER, 64),
        ("barrier", Collective.ALL_REDUCE, 0),
    ],
)
def test_names_of_calls(name: str, expected: Collective, size_bytes: int) -> None:
    (operation,) = executed(call(name, 16, rank=1)).operations
    root = (1, 0) if expected.has_root else BOTH
    assert operation == Operation(expected, size_bytes, root)


def test_messages_and_uneven_exchanges_go_to_ranks_of_their_group() -> None:
    group = {"pg_name": "5", "ranks": [1, 3], "group_size": 2}

    def of(rank: int) -> bytes:
        if rank % 2 == 0:
            return operators()
        first = "send" if rank == 1 else "recv"
        splits = "[1, 3]" if rank == 1 else "[2, 2]"
        uneven = call("all_to_allv", 4, pg_name="5", in_split_size=splits, request=1)
        return operators(call(first, 6, pg_name="5", rank=int(rank == 1)), uneven, groups=[group])

    trace = trace_in([of(rank) for rank in range(4)])
    sizes = trace.size_bytes[(trace.kind == Action.SEND) & (trace.rank == 1)]
    assert sizes.tolist() == [24, 12]
    assert sent(trace)[3, 1] == 8
    steps = Replay(trace, "x", np.arange(4), JobGrid(4, 1)).steps()
    assert steps.transfers.size_bytes.sum() == 24 + 12 + 8


def test_calls_wait_for_their_group_and_for_what_was_awaited() -> None:
    begun: Event = {"is_asynchronized_op": "True"}
    other = {"pg_name": "1", "ranks": [0, 1], "group_size": 2}
    trace = executed(
        call("allreduce", 8, request=[1, False], **begun),
        call("allreduce", 8, request=[2, False], pg_name="1"),
        call("allreduce", 8, request=[3, False], **begun),
        call("wait", 0, request=[2, False], pg_name="1"),
        call("allreduce", 8, request=[4, False], **begun),
        call("wait", 0, request=[99, False]),
        call("barrier", 0, request=[5, False], pg_name="1"),
        groups=[{"pg_name": "0", "ranks": [0, 1], "group_size": 2}, other],
    )
    before = waited_for(trace)
    calls = np.flatnonzero((trace.rank == 0) & (trace.kind == Action.COLLECTIVE)).tolist()
    found = [[calls.index(one) for one in sorted(before[node]) if one in calls] for node in calls]
    assert found == [[], [], [0], [0, 1, 2], [0, 1, 2, 3]]


@pytest.mark.parametrize("first", ["all_to_allv", "all_to_all", "allreduce"])
@pytest.mark.parametrize("second", ["all_to_allv", "all_to_all", "allreduce"])
def test_collectives_of_a_group_follow_each_other(first: str, second: str) -> None:
    """An all_to_allv is a send and a receive of rank 0, the others are one operation."""
    trace = executed(call(first, 8), call(second, 8, request=1))
    before = waited_for(trace)
    acts = np.isin(trace.kind, (Action.SEND, Action.RECEIVE, Action.COLLECTIVE))
    communications = np.flatnonzero((trace.rank == 0) & acts).tolist()
    split = 2 if first == "all_to_allv" else 1
    earlier, later = communications[:split], communications[split:]
    assert len(later) == (2 if second == "all_to_allv" else 1)
    assert not any(before[node].intersection(earlier) for node in earlier)
    assert all(before[node].issuperset(earlier) for node in later)


def test_a_call_that_is_not_asynchronous_holds_up_other_groups() -> None:
    other = {"pg_name": "1", "ranks": [0, 1], "group_size": 2}
    both = [{"pg_name": "0", "ranks": [0, 1], "group_size": 2}, other]
    wait = call("wait", 0)
    cases: list[tuple[Event, tuple[Any, ...], int]] = [
        ({"is_asynchronized_op": "true"}, (), 0),
        ({"is_asynchronized_op": "false"}, (wait,), 1),
        # Without a word, a call is asynchronous if something waits for it.
        ({}, (wait,), 0),
        ({}, (), 1),
    ]
    for said, later, expected in cases:
        first = call("allreduce", 8, **said)
        trace = executed(first, call("allreduce", 8, request=1, pg_name="1"), *later, groups=both)
        second = np.flatnonzero(trace.kind == Action.COLLECTIVE)[1]
        assert len(trace.after_lists[second]) == expected


def test_a_kernel_names_its_peer() -> None:
    """By its own rank, as PyTorch writes it where the call on the CPU is not recorded."""
    send = communication(5, 9, "send", 8, ranks="[0, 2]", **{"Dst Rank": 2})
    receive = communication(5, 9, "recv", 8, ranks="[0, 2]", **{"Src Rank": 0})
    events = (send,), (), (receive,)
    trace = trace_in([kineto(rank, *own, ranks=3) for rank, own in enumerate(events)])
    assert sent(trace) == {(0, 2): 32}


@given(st.lists(st.integers(0, 7), min_size=2, max_size=6, unique=True), st.booleans())
def test_a_message_of_a_group_goes_to_the_rank_that_it_names(
    ranks: list[int], has_own_rank: bool
) -> None:
    """The kernel, by the peer's own rank; its call on the CPU, by its number in the group."""
    first, last = ranks[0], ranks[-1]
    files = [list[Event]() for _ in range(8)]
    ends = ("send", first, last, "Dst Rank"), ("recv", last, first, "Src Rank")
    for name, own, peer, key in ends:
        of_call = attributes(name, 8, str(ranks), **{"Rank": ranks.index(peer), "External id": 7})
        on_cpu = {"cat": "cpu_op", "name": "record_param_comms", "args": of_call}
        named = {key: peer} if has_own_rank else {}
        of_gpu = communication(0, 5, name, 8, ranks=str(ranks), **named, **{"External id": 7})
        files[own] = [on_cpu, of_gpu]
    trace = trace_in([kineto(rank, *own, ranks=8) for rank, own in enumerate(files)])
    assert sent(trace) == {(first, last): 32}


@pytest.mark.parametrize(
    ("peer", "key", "what"),
    [
        ({"Dst Rank": 1}, "dst_rank", "must be in the process group, [0, 2], got 1"),
        ({"Dst Rank": -1}, "dst_rank", "must be 0 to"),
        ({"Dst Rank": 1, "Rank": 1}, "dst_rank", "must be in the process group, [0, 2], got 1"),
        ({"Rank": 2}, "rank", "must be 0 to 1, got '2'"),
    ],
)
def test_a_peer_outside_its_group_is_refused(peer: Event, key: str, what: str) -> None:
    send = communication(0, 5, "send", 8, ranks="[0, 2]", **peer)
    with pytest.raises(Malformed) as refused:
        trace_in([kineto(0, send, ranks=3), kineto(1, ranks=3), kineto(2, ranks=3)])
    assert refused.value.place == f": traceEvents[0].{key}"
    assert refused.value.what.startswith(what)


@pytest.mark.parametrize(
    ("content", "place", "what"),
    [
        (kineto(0, ranks=1).replace(b"distributedInfo", b"other"), ":1", "has no distributedInfo"),
        (kineto(0), ":1", "needs the files of 2 ranks, got 1"),
        (kineto(0, ranks=1).replace(b"[]}", b"[7]}"), ": traceEvents[0]", "must be an object"),
        (kineto(0, kernel(-1, 5), ranks=1), ": traceEvents[0]", "ts and dur must be 0 to"),
        (kineto(0, kernel(0, float("nan")), ranks=1), ": traceEvents[0]", "ts and dur must be"),
        (
            kineto(0, kernel(0, 5, "ncclKernel_AllReduce"), ranks=1),
            ": traceEvents[0]",
            "kernel of NCCL without 'Collective name'",
        ),
        (operators(call("allreduce", 8)), ": node 4", "has ranks up to 1, got 1 files"),
        (operators(call("allreduce", 8, dtype="Odd"), groups=[]), ": node 4", "has ranks up to"),
        (operators(schema="1.0.1"), ":1", "schema '1.0.1' has no sizes of communications"),
        (operators(("record_param_comms", [], {})), ": node 4", "needs the key 'collective_name'"),
        (b'{"schema": "1.1.1", "nodes": [1]}', ": nodes[0]", "needs the key 'id'"),
        (b'{"schema": "1.1.1", "nodes": ', ":1", "is not JSON"),
        (b'{"schemaVersion": 1', ":1", "is not JSON"),
    ],
)
def test_a_wrong_file_is_refused_at_its_place(content: bytes, place: str, what: str) -> None:
    with pytest.raises(Malformed) as refused:
        trace_in([content])
    assert (refused.value.place, refused.value.what[: len(what)]) == (place, what)


def test_calls_that_cannot_be_are_refused() -> None:
    for name, options, what in (
        ("teleport", {}, "unknown communication 'teleport'"),
        ("allreduce", {"dtype": "Odd"}, "unknown dtype 'odd'"),
        ("send", {"rank": 2}, "must be 0 to 1, got '2'"),
        ("all_to_allv", {"in_split_size": "[1]"}, "needs a split for each of 2 ranks, got 1"),
        ("all_to_allv", {"in_split_size": "[0, 0]"}, "cuts 8 elements into 0 equal parts"),
        ("all_to_allv", {"in_split_size": "[1, 2]"}, "cuts 8 elements into 3 equal parts"),
        ("allreduce", {"pg_size": 3}, r"names 3 ranks, process group '0' has \[0, 1\]"),
        ("allreduce", {"ranks": "[1]"}, r"names the ranks \[1\], process group '0' has \[0, 1\]"),
    ):
        with pytest.raises(Malformed, match=what) as refused:
            executed(call(name, 8, **options))
        assert refused.value.place.startswith(": node 4")
    with pytest.raises(Malformed, match="rank 0 takes no part") as missing:
        trace_in([operators(), operators(call("allreduce", 8))])
    assert (missing.value.file, missing.value.place) == (1, ": node 4")


@pytest.mark.parametrize(
    ("waits", "awaited", "told"),
    [("5", 1, 0), ("6", 2, 0), ("66", 2, 0), ("56", 3, 0), ("7", 3, 1), ("77", 3, 1)],
)
def test_a_wait_is_for_the_calls_of_its_group_with_its_request(
    waits: str, awaited: int, told: int
) -> None:
    """Two calls of group 6 share a request, which group 5 has, too; a second wait adds nothing."""
    groups = [{"pg_name": name, "ranks": [0, 1]} for name in "5678"]
    asynchronous: Event = {"request": 1, "is_asynchronized_op": "True"}
    begun = [call("allreduce", 8, pg_name=name, **asynchronous) for name in "566"]
    waiting = [call("wait", 0, request=1, pg_name=name) for name in waits]
    last = call("barrier", 0, request=3, pg_name="8")
    trace = executed(*begun, *waiting, last, groups=groups)
    calls = np.flatnonzero((trace.rank == 0) & (trace.kind == Action.COLLECTIVE))
    (end,) = trace.after_lists[calls[-1]]
    assert len(trace.after_lists[end]) == awaited if awaited > 1 else end in calls
    said = (f"requests of {2 * told} waits, which no call before them has: they wait for all",)
    assert set(trace.left_out) == {"2 operators: execution traces have no times", *said * told}


def test_files_of_some_ranks_are_refused_by_the_range_of_their_group() -> None:
    """Two files of ranks 2 and 3 are not those of ranks 0 and 1."""
    with pytest.raises(Malformed, match="has ranks up to 3, got 2 files"):
        executed(call("allreduce", 8, pg_name="9", global_rank_start=2), groups=[])


def test_a_process_group_is_defined_once() -> None:
    groups = [{"pg_name": "5", "ranks": ranks} for ranks in ([0], [1])]
    with pytest.raises(Malformed, match="process group '5' is defined twice, with other ranks"):
        executed(groups=groups)


def test_both_ends_of_a_message_agree() -> None:
    def pair(room: int) -> Trace:
        ends = call("send", 6, rank=1), call("recv", room, rank=0)
        return trace_in([operators(end) for end in ends])

    assert pair(6).left_out == ("2 operators: execution traces have no times",)
    assert pair(7).left_out[1] == "room of 1 receive for more bytes than are sent"
    what = "receives 20 bytes of the 24 that rank 0 sends at node 4 of its file"
    with pytest.raises(Malformed, match=what) as refused:
        pair(5)
    assert (refused.value.file, refused.value.place) == (1, ": node 4")
    options: Event = {"in_split_size": "[4, 4]", "out_split_size": "[5, 3]", "out_msg_nelems": 8}
    with pytest.raises(Malformed, match="receives 12 bytes of the 16 that rank 1 sends"):
        executed(call("all_to_allv", 8, **options))


def test_an_all_to_all_with_splits_is_uneven() -> None:
    def of(*splits: str) -> Trace:
        own = [operators(call("all_to_all", 8, in_split_size=one)) for one in splits]
        return trace_in(own)

    assert len(of("[]", "[]").operations) == 1
    assert sent(of("[2, 6]", "[4, 4]")) == {(0, 1): 24, (1, 0): 16}


def test_an_all_to_all_of_a_list_of_tensors_has_their_sizes() -> None:
    """Execution traces and Kineto have them as shapes of the input, and no splits."""
    shapes = [[[[2, 3], [1]], [], []], [[[1], [8]], [], []]]
    operators_, kernels = list[bytes](), list[bytes]()
    for rank, of_rank in enumerate(shapes):
        elements = (7, 9)[rank]
        file = json.loads(
            operators(call("all_to_all", elements, out_split_size="[]", out_msg_nelems=8))
        )
        for node in file["nodes"]:
            node["inputs"]["shapes"] = of_rank
        operators_.append(json.dumps(file).encode())
        on_gpu = communication(0, 9, "all_to_all", elements, **{"External id": 1})
        on_cpu = {"cat": "cpu_op", "name": "record_param_comms"}
        args = {"External id": 1, "Input Dims": of_rank}
        kernels.append(kineto(rank, on_gpu, {**on_cpu, "args": args}))
    for files in (operators_, kernels):
        assert sent(trace_in(files)) == {(0, 1): 4, (1, 0): 4}


def test_cut_off_splits_are_equal_ones_and_named() -> None:
    trace = executed(call("all_to_allv", 8, in_split_size="[1, 2, ..., 3]"))
    assert set(sent(trace).values()) == {16}
    assert any(said.startswith("sizes by peer of 2 calls") for said in trace.left_out)


@settings(max_examples=60)
@given(st.booleans(), st.data())
def test_a_damaged_file_is_refused_or_read(is_kineto: bool, data: st.DataObject) -> None:
    events = kernel(5, 10), communication(10, 5, "allreduce", 8), communication(20, 2, "gather", 8)
    whole = [
        kineto(rank, *events) if is_kineto else operators(call("send", 8), call("all_to_allv", 8))
        for rank in BOTH
    ]
    read_or_refused([data.draw(damaged(whole[0])), whole[1]], Defaults(2))


# Files: profiles say themselves of which rank they are.
def test_profiles_of_a_folder_in_any_order(tmp_path: Path) -> None:
    event = communication(0, 5, "allreduce", 8)
    names = [f"host{rank}_17.{rank}.pt.trace.json.gz" for rank in BOTH]
    for name, rank in zip(names, (1, 0), strict=True):
        (tmp_path / name).write_bytes(gzip.compress(kineto(rank, event)))
    others = [tmp_path / name for name in ("plan.1.json", "plan.01.json")]
    for other in others:
        other.touch()
    assert read_trace(tmp_path / names[1]).ranks == 2
    for other in others:
        other.unlink()
    for place in (tmp_path, tmp_path / names[1]):
        assert read_trace(place).operations == (Operation(Collective.ALL_REDUCE, 32, BOTH),)
    (tmp_path / names[0]).write_bytes(kineto(0, event))
    with pytest.raises(InputError, match="duplicate rank 0") as refused:
        read_trace(tmp_path)
    assert names[1] in str(refused.value)


def test_files_whose_names_do_not_end_with_the_rank_are_told_such_names(tmp_path: Path) -> None:
    """Those of PyTorch's tutorial, `worker0_step_10.json`, do not; all are in a folder already."""
    for rank in (0, 1):
        content = kineto(rank, communication(0, 9, "allreduce", 2))
        (tmp_path / f"worker{rank}_step_10.json").write_bytes(content)
    with pytest.raises(InputError, match="got 2 traces"):
        read_trace(tmp_path)
    with pytest.raises(InputError, match="put all into a folder, as NAME"):
        read_trace(tmp_path / "worker0_step_10.json")


def test_numbers_may_be_whole_floats() -> None:
    assert recorded(communication(0, 5, "allreduce", 8.0)).total_bytes == 32  # type: ignore[arg-type]
    assert executed(call("allreduce", 8.0)).total_bytes == 32  # type: ignore[arg-type]
    with pytest.raises(Malformed, match=r"must be 0 to [0-9]+, got '8\.5'"):
        executed(call("allreduce", 8.5))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["rank{}_trace.json", "step_5_rank{}_trace.json.gz"])
def test_profiles_are_named_by_their_rank(tmp_path: Path, name: str) -> None:
    """As TorchTitan names them; ranks go by their numbers, not by the order of their digits."""
    ends = {0: call("recv", 8, rank=10, pg_size=11), 10: call("send", 8, rank=0, pg_size=11)}
    for rank in range(11):
        nodes = [ends[rank]] if rank in ends else []
        content = operators(*nodes, groups=[{"pg_name": "0", "ranks": []}])
        (tmp_path / name.format(rank)).write_bytes(
            gzip.compress(content) if name.endswith("gz") else content
        )
    for place in (tmp_path, tmp_path / name.format(10)):
        trace = read_trace(place)
        assert (trace.ranks, sent(trace)) == (11, {(10, 0): 32})


def test_a_file_for_each_rank_by_name(tmp_path: Path) -> None:
    for rank in BOTH:
        (tmp_path / f"host_{rank}.json").write_bytes(operators(call("allreduce", 8)))
        (tmp_path / f"device_{rank}.json").write_bytes(
            kineto(rank, communication(0, 5, "allreduce", 8))
        )
    assert read_trace(tmp_path / "host_1.json").total_bytes == 32
    assert read_trace(tmp_path / "device_0.json").total_bytes == 32
    with pytest.raises(InputError, match="got 2 traces"):
        read_trace(tmp_path)
