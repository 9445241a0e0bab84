"""Execution plans of MSCCL++: what is sent, what is waited for, and what is refused."""

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from model.fabric.job_grid import JobGrid
from model.workload.trace import Action, Trace
from traffic_gen.traces.formats.nodes import Defaults, Malformed
from traffic_gen.traces.reading import trace_in
from traffic_gen.traces.replay import Replay

SIZE = 64_000
Plan = dict[str, Any]
Blocks = Callable[[int], list[list[Plan]]]
# Both GPUs are ready.
SYNC: list[Plan] = [
    {"name": name, "channel_ids": [0], "channel_type": "memory"}
    for name in ("rlxsignal", "rlxwait")
]
SIGNAL, WAIT = (
    {"name": name, "channel_ids": [0], "channel_type": "memory"} for name in ("signal", "wait")
)


def local(name: str, index: int, size: int = 1) -> Plan:
    return {"type": name, "index": index, "size": size}


def remote(index: int, size: int = 1) -> Plan:
    return {"buffer_id": 0, "index": index, "size": size}


def moved(name: str, source: list[Plan], target: list[Plan], **more: object) -> Plan:
    return {"name": name, "src_buff": source, "dst_buff": target, "channel_type": "memory", **more}


def plan(
    collective: str,
    blocks: Blocks,
    *,
    there: str = "i",
    chunks: tuple[int, int, int] = (2, 2, 2),
    type_: str = "memory",
    **more: object,
) -> Plan:
    """A plan of two GPUs, whose blocks have a channel each, and the buffer `there` of the peer."""
    gpus = []
    for gpu in range(2):
        of_gpu = [
            {
                "id": number,
                "ops": ops,
                "channels": [{"channel_type": type_, "channel_ids": [number]}],
                "remote_buffer_refs": [{"access_channel_type": type_, "remote_buffer_ids": [0]}],
            }
            for number, ops in enumerate(blocks(gpu))
        ]
        gpus.append(
            {
                "id": gpu,
                **dict(
                    zip(("input_chunks", "output_chunks", "scratch_chunks"), chunks, strict=True)
                ),
                "threadblocks": of_gpu,
                "channels": [{"channel_type": type_, "connected_to": [1 - gpu] * len(of_gpu)}],
                "remote_buffers": [
                    {"rank": 1 - gpu, "type": there, "access_channel_types": [type_]}
                ],
                "semaphores": [{"init_value": 0}],
            }
        )
    named = {"name": "ours", "collective": collective, "protocol": "Simple", "inplace": True}
    copied: Plan = json.loads(json.dumps({**named, "gpus": gpus, **more}))
    return copied


def read(written: Plan, size_bytes: int = SIZE) -> Trace:
    """Read a plan, and prove that it is replayed."""
    trace = trace_in([json.dumps(written).encode()], Defaults(4, size_bytes))
    Replay(trace, "plan", np.arange(trace.ranks), JobGrid(trace.ranks // 2, 2)).steps()
    return trace


def sent(trace: Trace) -> list[int]:
    return sorted(trace.size_bytes[trace.kind == Action.SEND].tolist())


def reduced(gpu: int) -> list[list[Plan]]:
    """Each GPU reads the peer's part of its chunk, adds its own, and writes both."""
    one = moved("rres", [local("i", gpu), remote(gpu)], [local("i", gpu), remote(gpu)])
    return [[*SYNC, one, SIGNAL, {"name": "nop"}, WAIT]]


def test_an_all_reduce_reads_adds_and_sends() -> None:
    """Both ready messages and requests have eight bytes; a signal goes with the data before it."""
    trace = read(plan("allreduce", reduced))
    assert sent(trace) == [8] * 4 + [SIZE // 2] * 4
    assert trace.left_out == ()


def test_packets_have_a_flag_for_each_word_and_need_no_signal() -> None:
    def blocks(gpu: int) -> list[list[Plan]]:
        return [
            [
                moved("ppkt", [local("i", 1 - gpu)], [remote(0)]),
                moved("respkt", [local("i", gpu), local("s", 0)], [local("i", gpu), remote(1)]),
                moved("upkt", [local("s", 1)], [local("i", 1 - gpu)]),
            ]
        ]

    trace = read(plan("allreduce", blocks, there="s", protocol="LL"))
    assert sent(trace) == [SIZE] * 4


@pytest.mark.parametrize("name", ["put", "pws", "pwsf"])
def test_a_port_sends_while_its_block_goes_on(name: str) -> None:
    def blocks(gpu: int) -> list[list[Plan]]:
        put = moved(name, [local("o", gpu)], [remote(gpu)], channel_ids=[0], channel_type="port")
        wait, signal = ({**one, "channel_type": "port"} for one in (WAIT, SIGNAL))
        return [[put, *([signal] if name == "put" else []), wait]]

    trace = read(plan("allgather", blocks, there="o", chunks=(1, 2, 0), type_="port"))
    assert sent(trace) == [SIZE // 2] * 2


def test_a_get_is_a_request_and_its_answer() -> None:
    def blocks(gpu: int) -> list[list[Plan]]:
        return [[*SYNC, moved("get", [remote(1 - gpu)], [local("o", 1 - gpu)])]]

    trace = read(plan("allgather", blocks, there="o", chunks=(1, 2, 0)))
    assert sent(trace) == [8] * 4 + [SIZE // 2] * 2


def test_blocks_of_a_group_share_a_range_and_meet_at_a_barrier() -> None:
    def blocks(gpu: int) -> list[list[Plan]]:
        def own(block: int) -> list[Plan]:
            group = {"tbg_info": {"tb_id": block, "tbg_size": 2}}
            copy = moved("copy", [local("o", gpu)], [local("s", 0)], **group)
            barrier = {"name": "barrier", "barrier_id": 0, "num_threadblocks": 2}
            put = moved("put", [local("s", 0)], [remote(gpu)], **group)
            return [copy, barrier, put, SIGNAL, WAIT]

        return [own(0), own(1)]

    written = plan("allgather", blocks, there="o", chunks=(1, 2, 1))
    assert sent(read(written)) == [SIZE // 4] * 4
    ops(written)[1].update(num_threadblocks=3)
    with pytest.raises(Malformed, match="2 blocks come to this barrier, not equally often"):
        read(written)


def test_a_semaphore_orders_two_blocks() -> None:
    def blocks(gpu: int) -> list[list[Plan]]:
        first = [moved("copy", [local("o", gpu)], [local("s", 0)]), with_semaphore("sem_release")]
        put = moved("put", [local("s", 0)], [remote(gpu)])
        return [first, [with_semaphore("sem_acquire"), put, SIGNAL, WAIT]]

    def unordered(gpu: int) -> list[list[Plan]]:
        first, second = blocks(gpu)
        return [first, second[1:]]

    shape = {"there": "o", "chunks": (1, 2, 1)}
    assert sent(read(plan("allgather", blocks, **shape))) == [SIZE // 2] * 2  # type: ignore[arg-type]
    with pytest.raises(Malformed, match=r"reads part 0 of buffer 's' of GPU 0 before|data race: "):
        read(plan("allgather", unordered, **shape))  # type: ignore[arg-type]


def with_semaphore(name: str) -> Plan:
    return {"name": name, "semaphore_ids": [0]}


def test_a_signal_of_another_block_of_a_group_orders_nothing() -> None:
    """Of two chunks each block copies one; of one chunk each of them reads a half."""

    def blocks(gpu: int) -> list[list[Plan]]:
        def own(block: int) -> list[Plan]:
            group = {"tbg_info": {"tb_id": block, "tbg_size": 2}}
            copied, reduced = 2 - 2 * gpu, 2 * gpu
            copy = moved("copy", [local("i", copied, 2)], [local("s", copied, 2)], **group)
            both = [local("i", reduced), remote(reduced)]
            return [copy, SIGNAL, WAIT, moved("rres", both, both, **group), SIGNAL, WAIT]

        return [own(0), own(1)]

    what = re.escape(
        "data race: reads part 5 of buffer 's' of GPU 0, which gpus[0].threadblocks[0].ops[0] "
        "writes, and no signal, barrier or semaphore orders the two"
    )
    with pytest.raises(Malformed, match=what):
        read(plan("allreduce", blocks, there="s", chunks=(4, 4, 4)))


def test_an_unknown_collective_is_told() -> None:
    trace = read(plan("sendrecv", reduced))
    assert trace.left_out == ("check of the result, which 'sendrecv' does not name",)


def refused(changed: Callable[[Plan], object]) -> Malformed:
    written = plan("allreduce", reduced)
    changed(written)
    with pytest.raises(Malformed) as raised:
        read(written)
    return raised.value


def ops(written: Plan) -> list[Plan]:
    listed: list[Plan] = written["gpus"][0]["threadblocks"][0]["ops"]
    return listed


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        (lambda p: ops(p).pop(0), "waits for a signal that GPU 0 does not give"),
        (lambda p: ops(p).pop(1), "for which none of its blocks waits"),
        (lambda p: ops(p).pop(2), "allreduce: GPU 0 ends with"),
        (lambda p: ops(p)[2].update(name="glres"), "'glres' cannot be replayed: a switch reduces"),
        (lambda p: ops(p)[2].update(name="pipeline"), "'pipeline' cannot be replayed"),
        (lambda p: ops(p)[2].update(name="x" * 99), "unknown operation 'xxx"),
        (lambda p: ops(p)[2]["src_buff"][0].update(index=2), "is outside of buffer 'i' of GPU 0"),
        (lambda p: ops(p)[2]["src_buff"][1].update(buffer_id=1), "must be 0 to 0, got '1'"),
        (lambda p: ops(p)[2]["src_buff"][0].update(size=-1), "must be 0 to"),
        (lambda p: ops(p)[2]["src_buff"].clear(), "has 0 sources and 2 targets"),
        (lambda p: ops(p)[0].update(channel_ids=[7]), "must be 0 to 0, got '7'"),
        (lambda p: ops(p)[0].update(channel_ids="0"), "channel_ids must be a list, got str"),
        (lambda p: p.update(gpus=[]), "must have 1 to 4096 gpus, got 0"),
        (lambda p: p.update(gpus={}), "gpus must be a list, got dict"),
        (lambda p: p.update(inplace=1), "inplace must be true or false"),
        (lambda p: p["gpus"].insert(0, 1), "must be an object, got int"),
        (lambda p: p["gpus"][1].update(id=0), "must have the id 1"),
        (lambda p: p["gpus"][0].update(input_chunks=10**9), "must be 0 to 1048576"),
        (lambda p: p["gpus"][0].update(inputChunks=1), "is a plan of MSCCL\\+\\+ before 0.8"),
        (
            lambda p: (p.update(colletive=p.pop("collective")), p["gpus"][0].update(inputChunks=1)),
            "is a plan of MSCCL\\+\\+ before 0.8",
        ),
        (lambda p: p["gpus"][0]["remote_buffers"][0].update(rank=2), "must be 0 to 1, got '2'"),
        (lambda p: p["gpus"][0]["channels"][0].update(connected_to=[5]), "must be 0 to 1"),
        (lambda p: p["gpus"][0]["remote_buffers"][0].update(type="io"), "unknown type 'io'"),
        (lambda p: p["gpus"][0]["remote_buffers"][0].update(type=""), "unknown type ''"),
        (lambda p: ops(p).extend([{"name": "nop"}] * 2**17), "must have at most 131072 operations"),
        (lambda p: ops(p).extend([WAIT] * 2**15), "must have at most 32768 messages and steps"),
        (lambda p: p["gpus"][0].update(input_chunks=2**20), "must have at most 524288 parts"),
        (lambda p: p.update(max_message_size=8), "is for sizes of 0 to 8 bytes, got 64000"),
        (lambda p: p.update(min_message_size=2**20), "is for sizes of 1048576 to 18446744073709"),
    ],
)
def test_a_wrong_plan_is_refused(changed: Callable[[Plan], object], what: str) -> None:
    assert re.search(what, str(refused(changed)))


def test_gpus_that_wait_for_each_other_are_refused_with_the_place() -> None:
    written = plan("allreduce", lambda gpu: [list(reversed(reduced(gpu)[0]))])
    with pytest.raises(Malformed, match="is in a dependency cycle") as raised:
        read(written)
    assert raised.value.place == ": gpus[0].threadblocks[0].ops[0]"


def test_a_plan_names_the_place_of_a_mistake() -> None:
    error = refused(lambda p: ops(p)[4].update(name="gstore"))
    assert error.place == ": gpus[0].threadblocks[0].ops[4]"


@pytest.mark.parametrize(
    "text",
    [
        '{"collective": "x", "gpus": ' + "[" * 100_000,
        '{"collective": 1, "gpus": [1e999',
        '{"collective": "x", "gpus": []} {}',
    ],
)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(Malformed, match="is not JSON"):
        trace_in([text.encode()], Defaults(4, SIZE))


def test_a_key_that_stands_twice_is_refused() -> None:
    text = json.dumps(plan("allreduce", reduced)).replace("{", '{"gpus": [], ', 1)
    with pytest.raises(Malformed, match="duplicate key 'gpus'"):
        trace_in([text.encode()], Defaults(4, SIZE))


def test_what_of_a_plan_is_left_out_is_told() -> None:
    text = json.dumps(
        {**plan("allreduce", reduced), "buffer_alignment": 16, "reduce_op": 1, "nvls": 1}
    )
    trace = trace_in([text.encode()], Defaults(4, SIZE))
    alignment = "buffer_alignment: chunks are as long as their bytes"
    assert trace.left_out == (alignment, "key 'nvls', 1 time")


def test_a_plan_without_a_size_is_refused() -> None:
    with pytest.raises(Malformed, match="needs a size"):
        trace_in([json.dumps(plan("allreduce", reduced)).encode()], Defaults(4))
