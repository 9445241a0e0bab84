"""Text formats of traces: what a sample of each means, and what is refused, with its line."""

from pathlib import Path
from unittest.mock import Mock, patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.fabric.job_grid import JobGrid
from model.workload.trace import Action, Trace
from model.workload.transfers.collective import Collective
from model.workload.transfers.proof import ScheduleError
from scenarios.library_files import LIBRARY
from tests.unit.pytorch_files import call, communication, kineto, operators
from tests.unit.test_traces import damaged, read_or_refused
from tests.unit.traces import peak_below, same
from traffic_gen.traces import replay
from traffic_gen.traces.formats import msccl, nodes
from traffic_gen.traces.formats.nodes import Defaults, Malformed
from traffic_gen.traces.reading import FORMATS, read_trace, trace_in
from traffic_gen.traces.replay import Replay

SAMPLES = {
    path.name: path.read_text() for path in sorted((LIBRARY / "traces").iterdir()) if path.is_file()
}
GIVEN = Defaults(4, 64_000_000)
OURS = Path(__file__).parents[1] / "samples" / "traces"
IN_PLACE, REDUCE, CONNECTIONS = (
    (OURS / name).read_text() for name in ("in-place.xml", "reduce-in-place.xml", "connections.cm")
)


def sample(name: str) -> Trace:
    return trace_in([SAMPLES[name].encode()], given_to(name))


def given_to(name: str) -> Defaults:
    """The size of a matrix would multiply its bytes."""
    return Defaults(4) if name.endswith("matrix") else GIVEN


@settings(max_examples=100)
@given(st.sampled_from([*SAMPLES.values(), *(p.read_text() for p in OURS.iterdir())]), st.data())
def test_a_damaged_sample_is_refused_or_read(text: str, data: st.DataObject) -> None:
    read_or_refused([data.draw(damaged(text.encode()))], GIVEN)


@pytest.mark.parametrize("path", sorted(OURS.iterdir()), ids=lambda path: path.name)
def test_a_sample_is_replayed(path: Path) -> None:
    trace = trace_in([path.read_bytes()], given_to(path.name))
    steps = Replay(trace, path.name, np.arange(trace.ranks), JobGrid(trace.ranks, 1)).steps()
    assert steps.size_bytes == trace.total_bytes
    assert steps.transfers.size_bytes.sum() >= trace.size_bytes.sum() > 0


def test_every_format_has_a_sample() -> None:
    paths = [*(LIBRARY / "traces").iterdir(), *OURS.iterdir()]
    found = {read_trace(path, given_to(path.name)).format for path in paths}
    by_pytorch = [
        [kineto(rank, communication(0, 5, "AllReduce", 64)) for rank in (0, 1)],
        [operators(call("allreduce", 64))] * 2,
    ]
    assert found | {trace_in(files).format for files in by_pytorch} == set(FORMATS)


def test_a_byte_matrix_is_a_message_for_each_pair() -> None:
    trace = sample("experts.matrix")
    assert (trace.format, trace.ranks, len(trace)) == ("byte matrix", 4, 24)
    sends = trace.kind == Action.SEND
    sent = np.zeros((4, 4), int)
    sent[trace.rank[sends], trace.peer[sends]] = trace.size_bytes[sends]
    assert sent[:, 2].tolist() == [24_000_000, 24_000_000, 0, 24_000_000]
    assert sent.sum() == trace.total_bytes == 144_000_000
    assert not len(trace.after.values)


def sent(text: str, size_bytes: int | None = None) -> list[int]:
    trace = trace_in([text.encode()], Defaults(2, size_bytes))
    assert trace.format == "byte matrix"
    return list(map(int, trace.size_bytes[trace.kind == Action.SEND]))


def test_fractions_and_suffixes_of_a_byte_matrix() -> None:
    """As nccl-tests: K, M and G are powers of 1024; fractions are multiplied, and cut off."""
    assert sent("0 1.5K\n2m 0\n") == [1536, 2 * 2**20]
    assert sent("0 8e6\n1G 0\n") == [8_000_000, 2**30]
    assert sent("0 1Ki\n1.5MiB 0\n") == [1024, 3 * 2**19]
    assert sent("0 .25\n0.3333 0\n", 1000) == [250, 333]
    with pytest.raises(Malformed, match=r"must be at least a byte, got 0\.25; `size` multiplies"):
        sent("0 0.25\n1 0\n")


def test_what_of_matrices_and_schedules_is_left_out_is_named() -> None:
    assert trace_in([b"7 1\n1 2\n"]).left_out == ("9 bytes of ranks to themselves",)
    calc = b"num_ranks 2\nrank 0 {\ncalc 1 cpu 2\ncalc 1 cpu 0 nic 1\ncalc 1\n}\n"
    assert trace_in([calc]).left_out == ("processors of messages, and interfaces, in 1 statement",)
    larger = b"num_ranks 2\nrank 0 {\nsend 8b to 1\n}\nrank 1 {\nrecv 9b from 0\n}\n"
    told = ("room of 1 receive for more bytes than are sent",)
    assert trace_in([larger]).left_out == told
    sends = b"a: send 1b to 1 cpu 0\nb: send 1b to 1 nic 1\nb irequires a\n}\nrank 1 {\n"
    placed = b"num_ranks 2\nrank 0 {\n%srecv 1b from 0\nrecv 1b from 0\n}\n" % sends
    (said,) = trace_in([placed]).left_out
    assert said == "processors of messages, and interfaces, in 2 statements"
    begun = b"num_ranks 2\nrank 0 {\na: calc 1\ncalc 1%s\nb: calc 1 cpu 2\nb irequires a\n}\n"
    (said,) = trace_in([begun % b""]).left_out
    assert said.startswith("turns of 1 calculation at whose start (irequires) others start")
    assert trace_in([begun % b" cpu 1"]).left_out == ()


def test_an_htsim_connection_begins_at_its_start() -> None:
    trace = trace_in([CONNECTIONS.encode()])
    assert (trace.format, trace.ranks, trace.total_bytes) == ("htsim", 3, 6000)
    (delay,) = np.flatnonzero(trace.seconds)
    assert (trace.rank[delay], trace.seconds[delay]) == (0, 1.5e-6)
    (later,) = np.flatnonzero(trace.size_bytes == 2000)
    assert [node for node, waits in enumerate(trace.after_lists) if waits] == [later]
    assert trace.left_out == ("1 priorities of connections",)
    swapped = CONNECTIONS.replace("Nodes 3\nConnections 3\n", "Connections 3\nNodes 3\n")
    assert trace_in([swapped.encode()]).total_bytes == 6000


def test_starts_of_htsim_are_no_compute_of_their_ranks() -> None:
    text = b"Nodes 2\nConnections 2\n0->1 start 1000000 size 9\n0->1 start 2000000 size 9\n"
    trace, grid = trace_in([text]), JobGrid(1, 2)
    told = list(Replay(trace, "x", np.arange(2), grid).details)
    assert told[1:] == [
        "sends: 2, 18 bytes",
        "starts: 2 connections after the begin, up to 2e-06 s",
    ]


def fired(*triggers: str, begins: str = "trigger 1", source: int = 1) -> list[tuple[int, ...]]:
    """What each node waits for: connections 0->1 and 2->1 that fire a trigger, then two more."""
    ends = "0->1 start 0 size 1 recv_done_trigger 1\n2->1 start 0 size 1 send_done_trigger 1\n"
    later = f"{source}->3 {begins} size 1\n{source}->4 trigger 1 size 1\n"
    text = f"Nodes 5\n{ends}{later}" + "".join(f"trigger {one}\n" for one in triggers)
    return list(trace_in([text.encode()]).after_lists)


def test_an_htsim_trigger_starts_connections_at_the_ends_of_others() -> None:
    nothing = [()] * 4
    assert fired("count 2 barrier id 1") == [*nothing, (1, 3), (), (1, 3), ()]
    assert fired("id 1 multishot") == [*nothing, (1,), (), (3,), ()]
    for wrong, what in (
        (("id 1 oneshot",), "trigger 1 needs the ends of 1 connections, got 2"),
        (("id 1 barrier count 3",), "trigger 1 needs the ends of 3 connections, got 2"),
        ((), "unknown trigger 1"),
    ):
        with pytest.raises(Malformed, match=f"^{what}"):
            fired(*wrong)
    with pytest.raises(Malformed, match=r"^needs a start or a trigger"):
        fired("id 1 multishot", begins="start 0 trigger 1")
    with pytest.raises(Malformed, match=r"^waits for line 3, which is not of node 0"):
        fired("id 1 barrier count 2", source=0)


def test_dependencies_of_an_htsim_barrier_are_counted_before_they_are_made() -> None:
    """Each connection that a barrier starts waits for all that fire it."""
    fires, begins = "0->1 start 0 size 1 send_done_trigger 1\n", "0->1 trigger 1 size 1\n"
    text = f"Nodes 2\n{fires * 50}{begins * 50}trigger id 1 barrier count 50\n"
    with patch.object(nodes, "MOST_WAITS", 2600):
        trace = trace_in([text.encode()])
    assert len(trace.after.values) == 2500
    placed = Replay(trace, "barrier", np.arange(2), JobGrid(1, 2))
    with patch.object(replay, "MOST_WAITS", 2599), pytest.raises(ScheduleError):
        placed.steps()  # the 100 receives wait for their sends
    with (
        patch.object(nodes, "MOST_WAITS", 2599),
        patch.object(nodes.Nodes, "wait", Mock(side_effect=AssertionError("made"))),
        pytest.raises(Malformed) as refused,
    ):
        trace_in([text.encode()])
    assert (refused.value.what, refused.value.place) == (
        "trace must have at most 2599 dependencies",
        ":101",
    )


def test_the_trigger_0_of_htsim_is_none() -> None:
    text = "Nodes 2\nConnections 1\n0->1 id 1 start 0 size 9 send_done_trigger 0"
    assert len(trace_in([f"{text} recv_done_trigger 0\n".encode()])) == 2


def test_a_word_that_htsim_makes_nothing_of() -> None:
    marked = CONNECTIONS.replace("prio 2", "addon prio 2 addon")
    assert same(trace_in([marked.encode()]), trace_in([CONNECTIONS.encode()]))


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        (CONNECTIONS.replace("1->2", "1->3"), ":6", "node must be 0 to 2, got 3"),
        (CONNECTIONS.replace("size 3000", "size 0"), ":6", "needs a start or a trigger"),
        (CONNECTIONS.replace("start 0 size 3000", "size 3000"), ":6", "needs a start or a trigger"),
        (CONNECTIONS.replace("start 0 size 3", f"start {10**17} size 3"), ":6", "time must be at"),
        (CONNECTIONS.replace("size 3000", f"size {10**17}"), ":6", "must be 0 to 281474976710656"),
        (CONNECTIONS.replace("start 0 size 3", "trigger 1 size 3"), ":6", "unknown trigger 1"),
        (CONNECTIONS + "trigger id 1\n", ":7", "a trigger needs one id and one kind"),
        (CONNECTIONS + "trigger oneshot\n", ":7", "a trigger needs one id and one kind"),
        (CONNECTIONS + "trigger id 1 twoshot\n", ":7", "unknown line 'trigger id 1 twoshot'"),
        (CONNECTIONS + "trigger id 1 oneshot\n" * 2, ":8", "duplicate trigger 1"),
        (CONNECTIONS.replace("prio", "weight"), ":4", "must be a key and a number, got 'weight 2'"),
        (CONNECTIONS.replace("prio 2", "prio 2 prio 3"), ":4", "duplicate key"),
        ("Nodes 9\n" + CONNECTIONS, ":3", "duplicate Nodes"),
        ("Connections 1\n0->1 start 0 size 1\n", ":2", "needs Nodes before the first"),
        (CONNECTIONS.replace("prio 2", "prio"), ":4", "unknown line '0->1"),
        (CONNECTIONS.replace("Connections 3", "Connections 4"), ":3", "must have 4 Connections"),
        ("rank 0 {\n}\n", ":1", "needs num_ranks before the first rank"),
        ("TRANSFORMER\n1\nx\n", ":1", "unknown strategy 'TRANSFORMER'"),
        ("\r\n \nMICRO\n1\nx\n", ":1", "unknown strategy ''"),
        ("comm_type,comm_group,msg_size,stage\nCommType.broadcast,,1,\n", ":1", "lists calls for"),
        ("[rank0 ~ rank7]\r\ncomm_type,comm_group,msg_size\r\n", ":1", "lists calls for"),
        ("HYBRID all_gpus: 2\nx\n", ":1", "unknown strategy 'HYBRID'"),
        ('{"name": "x", "collective": "allreduce", "gpus": []}', ":1", "needs a size"),
        ("print\n<algo coll='x'/>", ":1", "is not XML"),
        ("0 1\n1 x\n", ":2", "must be numbers of bytes"),
        ("0 x\n1 0\n", ":1", "must be numbers of bytes"),
        ("nan 0\n1 0\n", ":1", "must be numbers of bytes"),
        ('"0","1"\n"1","0"\n', ":1", "must be numbers of bytes"),
        (
            "# of\n\nrank,0,1\n0,0,1\n1,1,0\n",
            ":3",
            "must be numbers of bytes, such as 64 or 1.5M, got 'r",
        ),
        (",a,b\na,0,1\nb,1,0\n", ":1", "must be numbers of bytes, such as 64 or 1.5M, got 'a'"),
        ("name,bytes\nx,5\n", ":1", "unknown format of trace"),
        ("fabric: 1\n", ":1", "unknown format of trace"),
        (
            '{"version": "2.4", "pg_config": {}, "entries": []}',
            ":1",
            "is a dump of PyTorch's flight",
        ),
        ('{"entries": [{"profiling_name": "x"}]}', ":1", "is a dump of PyTorch's flight"),
        ('{"version": "2.4", "other": []}', ":1", "unknown format of trace"),
    ],
)
def test_a_wrong_text_is_told_as_its_formats_error(text: str, place: str, what: str) -> None:
    with pytest.raises(Malformed) as refused:
        trace_in([text.encode()])
    assert (refused.value.place, refused.value.what[: len(what)]) == (place, what)


def test_an_aicb_iteration_has_its_groups_and_its_order() -> None:
    trace = sample("layers.txt")
    found = [(one.collective, one.size_bytes, one.ranks) for one in trace.operations]
    tensor = [(Collective.ALL_REDUCE, 32_000_000, ranks) for ranks in ((0, 1), (2, 3))]
    mlp, attention = (
        [(Collective.ALL_REDUCE, size, ranks) for ranks in ((0, 2), (1, 3))]
        for size in (48_000_000, 24_000_000)
    )
    embedding = [(Collective.ALL_REDUCE, 4_000_000, ranks) for ranks in ((0, 1), (2, 3))]
    assert found == [*embedding, *tensor * 2, *tensor, *mlp, *tensor, *attention]
    computed = trace.seconds[trace.rank == 0]
    assert computed[computed > 0].tolist() == [5e-4, 7e-4, 7e-4, 7e-4, 5e-4, 5e-4]
    # The input gradient of a layer does not wait for the weight gradient of the one before.
    node = {
        (number, rank): node
        for node, (number, rank) in enumerate(
            zip(trace.operation.tolist(), trace.rank.tolist(), strict=True)
        )
        if number >= 0
    }
    before = {node[10, 0]}
    while before:
        assert node[8, 0] not in before
        before = {earlier for later in before for earlier in trace.after_lists[later]}


def test_ranks_that_aicb_does_not_name_are_the_jobs() -> None:
    text = SAMPLES["layers.txt"].replace("all_gpus: 4 ", "")
    assert trace_in([text.encode()], Defaults(8)).ranks == 8


def pipelined(pp: int, ga: int, vpp: int, *, named: bool = True) -> Trace:
    """A workload as AICB writes it: gradients first, then the layers of each microbatch."""
    row = "{}\t-1\t1000\tALLREDUCE\t64\t1000\tNONE\t0\t1\tNONE\t0\t0\n"
    sync = "grad_gather\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\tALLGATHER\t4096\t0\n"
    block = (row.format("embedding_layer") if named else "") + row.format("attention") * vpp
    sizes = f"ep: 1 pp: {pp} vpp: {vpp} ga: {ga} all_gpus: {4 * pp}"
    header = f"HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 {sizes} pp_comm 512.0\n"
    rows = sync + block * (ga if named else 1)
    return trace_in([f"{header}{rows.count(chr(10))}\n{rows}".encode()])


@settings(max_examples=20)
@given(st.integers(2, 4), st.integers(1, 6), st.integers(1, 3))
def test_aicb_stages_send_each_microbatch_on(pp: int, ga: int, vpp: int) -> None:
    trace = pipelined(pp, ga, vpp)
    sends = trace.kind == Action.SEND
    parts = vpp if ga % pp == 0 else 1
    assert sends.sum() == 2 * ga * (pp * parts - 1) * 4
    assert (trace.size_bytes[sends] == 512 * vpp // parts).all()
    step = (trace.peer - trace.rank)[sends] // 4
    assert set((step % pp).tolist()) <= {1, pp - 1}
    # Each stage has the groups, the compute and the operations that the file has.
    reduces = [one for one in trace.operations if one.collective is Collective.ALL_REDUCE]
    assert len(reduces) == pp * 2 * ga * (1 + vpp)
    assert {len(one.ranks) for one in trace.operations} == {2}
    assert np.allclose(np.bincount(trace.rank, trace.seconds), 2e-6 * ga * (1 + vpp))
    # Gradients are gathered behind all passes.
    assert trace.operations[-1].collective is Collective.ALL_GATHER


def test_the_last_stage_of_aicb_computes_one_microbatch_in_turn() -> None:
    """1F1B: the last stage sends the first gradient back before the second microbatch arrives."""
    trace = pipelined(2, 2, 1)
    sends = np.flatnonzero((trace.kind == Action.SEND) & (trace.rank == 4))
    receives = np.flatnonzero((trace.kind == Action.RECEIVE) & (trace.rank == 4))
    assert receives[0] < sends[0] < receives[1] < sends[1]


def test_aicb_microbatches_without_a_name_have_all_layers() -> None:
    trace = pipelined(2, 3, 4, named=False)
    assert trace.left_out[0] == (
        "interleaving (vpp): 3 microbatches (ga) are not a multiple of 2 stages; "
        "its 4 messages of a pass are one"
    )
    assert trace.left_out[1].startswith("division of the layers among 3 microbatches (ga)")
    assert np.allclose(np.bincount(trace.rank, trace.seconds), 2e-6 * 3 * 4)
    assert pipelined(2, 1, 1, named=False).left_out == ()


def test_a_checkpoint_of_aicb_goes_forward_again() -> None:
    text = SAMPLES["layers.txt"].replace("checkpoints: 0", "checkpoints: 1 1")
    again = text.replace("checkpoint_initiates: 0", "checkpoint_initiates: 1 2")
    whole, more = trace_in([text.encode()]), trace_in([again.encode()])
    computed = [trace.seconds[trace.rank == 0] for trace in (whole, more)]
    assert [part[part > 0].tolist() for part in computed] == [
        [5e-4, 7e-4, 7e-4, 7e-4, 5e-4, 5e-4],
        [5e-4, 7e-4, 5e-4, 7e-4, 7e-4, 5e-4, 5e-4],
    ]
    assert len(more.operations) == len(whole.operations) + 2


def test_what_of_aicb_is_left_out_is_named() -> None:
    text = SAMPLES["layers.txt"].replace("model_parallel_NPU_group: 2", "batch: 3")
    text = text.replace("mlp\t-1", "mlp\t0").replace("32000000", "0", 1)
    assert trace_in([text.encode()]).left_out == (
        "header key 'batch', which is unknown",
        "update times of 3 layers (column 12)",
        "dependencies of 1 layer (column 2)",
        "16 all-reduce operations of tensor-parallel groups of one rank",
        "4 all-reduce operations of no bytes",
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("pp: 1", "pp: 1 pp_comm: 8 vpp: 2"), "vpp without pipeline stages (pp)"),
        (("pp: 1", "pp: 1 pp_comm: 8"), "pp_comm without pipeline stages (pp)"),
        (
            ("checkpoints: 0", "checkpoints: 1 1"),
            "checkpoints, which need both checkpoints and checkpoint_initiates",
        ),
        (("pp: 1", "pp: 1 mode: 2"), "mode 2, which is unknown"),
        (("NONE\t0", "NONE\t7"), "7 bytes of passes without an operation (NONE)"),
        (
            ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", "MICRO"),
            "model_parallel_NPU_group of a benchmark, whose operations are of all ranks",
        ),
    ],
)
def test_what_of_aicb_asks_for_more_is_named(change: tuple[str, str], told: str) -> None:
    text = SAMPLES["layers.txt"].replace(*change, 1)
    assert trace_in([text.encode()]).left_out[0] == told


def test_expert_groups_of_aicb() -> None:
    text = SAMPLES["layers.txt"].replace("ep: 1", "ep: 2").replace("all_gpus: 4", "all_gpus: 8")
    text = text.replace("ALLREDUCE\t24000000", "ALLTOALL_EP\t24000000")
    text = text.replace("ALLREDUCE\t48000000", "ALLREDUCE_DP_EP\t48000000")
    groups = [one.ranks for one in trace_in([text.encode()]).operations]
    assert groups[-4:] == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert [ranks for ranks in groups if ranks[1] - ranks[0] == 4] == [
        (0, 4),
        (1, 5),
        (2, 6),
        (3, 7),
    ]


def test_an_msccl_algorithm_sends_its_chunks() -> None:
    trace = sample("ring-all-gather.xml")
    assert (trace.format, trace.ranks) == ("MSCCL XML", 4)
    sends = trace.kind == Action.SEND
    assert trace.size_bytes[sends].tolist() == [16_000_000] * 12
    assert (trace.peer[sends] == (trace.rank[sends] + 1) % 4).all()


@pytest.mark.parametrize(
    ("name", "change", "place", "what"),
    [
        ("experts.matrix", ("0,8000000,24", "0,8x,24"), ":2", "must be numbers of bytes, such as"),
        ("experts.matrix", ("0,8000000,24", "0,-8,24"), ":2", "must be numbers of bytes, such as"),
        ("experts.matrix", ("0,8000000,24000000,", "0,24000000,"), ":2", "must have 4 numbers"),
        ("experts.matrix", ("0,8000000", "1\n" * 65_537 + "0,8000000"), ":65538", "must have 1 to"),
        ("layers.txt", ("all_gpus: 4", "all_gpus: 1099511627776"), ":1", "must have 1 to 65536"),
        ("layers.txt", ("pp: 1", "pp: 2"), ":1", "pp 2 needs pp_comm"),
        ("layers.txt", ("pp: 1", "pp: 0"), ":1", "pp must be a whole number from 1 on, got 0"),
        ("layers.txt", ("pp: 1", "ga: 2.5"), ":1", "ga must be a whole number from 1 on, got 2.5"),
        ("layers.txt", ("pp: 1", "pp: 1 2"), ":1", "pp must have one number, got 2 numbers"),
        ("layers.txt", ("pp: 1", "pp: 4"), ":1", "4 ranks must be a multiple of 2 (tensor) times"),
        ("layers.txt", ("pp: 1", "pp: 1 pp: 1"), ":1", "duplicate key 'pp'"),
        ("layers.txt", ("checkpoints: 0", "checkpoints: 2 1"), ":1", "checkpoints must have 2"),
        ("layers.txt", ("checkpoints: 0", "checkpoints: 1 3"), ":1", "checkpoints must be layers"),
        (
            "layers.txt",
            ("pp: 1 all_gpus: 4 checkpoints: 0", "pp: 2 pp_comm: 8 all_gpus: 4 checkpoints: 1 1"),
            ":1",
            "checkpoints cannot be combined with pp above 1",
        ),
        ("layers.txt", ("group: 2", "group: 3"), ":1", "4 ranks must be a multiple of 3"),
        ("layers.txt", ("HYBRID_", "DATA_"), ":1", "unknown strategy"),
        ("layers.txt", ("\n3\n", "\n1099511627776\n"), ":2", "must be the number of layers, 3"),
        ("layers.txt", ("all_gpus: 4", "all_gpus: " + "4" * 4301), ":1", "must be a key and"),
        ("layers.txt", ("mlp\t-1\t", "mlp\t"), ":5", "must have 12 columns, got 11"),
        ("layers.txt", ("500000", "9" * 18), ":4", "time must be at most a day, got 1e+09 s"),
        ("layers.txt", ("500000", "5e5"), ":4", "must be a number, got '5e5'"),
        ("layers.txt", ("ALLREDUCE\t24", "REDUCE\t24"), ":4", "unknown operation 'REDUCE'"),
        ("ring-all-gather.xml", ('ngpus="4"', 'ngpus="99999999"'), ":2", "ngpus must be 1 to 4096"),
        ("ring-all-gather.xml", ('s_chunks="0"', 's_chunks="1099511627776"'), ":3", "s_chunks"),
        ("ring-all-gather.xml", ('<tb id="1"', '<tb id="1024"'), ":10", "id must be 0 to 1023"),
        ("ring-all-gather.xml", ("allgather", "scan"), ":2", "unknown collective 'scan'"),
        ("ring-all-gather.xml", ("</algo>", "</algo>\n<algo>"), ":48", "has a second algorithm"),
        ("ring-all-gather.xml", ("<algo", "<schedule"), ":2", "unknown element <schedule>"),
        ("ring-all-gather.xml", ('type="cpy"', 'type="nop"'), ":2", "allgather: GPU"),
        ("ring-all-gather.xml", ('"rcs"', '"rrcs"'), ":17", "adds chunk"),
        ("ring-all-gather.xml", ('o_chunks="4"', 'o_chunks="3"'), ":44", "writes outside the 3"),
        ("ring-all-gather.xml", ('dstoff="3"', 'dstoff="-1"'), ":44", "writes outside the 4"),
        ("ring-all-gather.xml", ("Simple", "LL64"), ":2", "unknown proto 'LL64'"),
        ("ring-all-gather.xml", ("<algo", '<algo maxBytes="4096"'), ":2", "is for sizes from 0"),
        ("ring-all-gather.xml", ("<algo", '<algo minBytes="99999999"'), ":2", "is for sizes from"),
        ("ring-all-gather.xml", ("</algo>", ""), ":48", "is not XML"),
        ("ring-all-gather.xml", ("<algo", "<!DOCTYPE a><algo"), ":2", "has a DOCTYPE"),
        ("ring-all-gather.xml", ('send="1"', 'send="-1"'), ":5", "step 's' needs a peer"),
        ("ring-all-gather.xml", ('step s="1"', 'step s="2"'), ":6", "must be step 1 of its block"),
        ("ring-all-gather.xml", ('gpu id="1"', 'gpu id="0"'), ":14", "duplicate GPU 0"),
        ("ring-all-gather.xml", ('depid="-1"', 'depid="7"'), ":5", "depends on unknown step -1"),
        ("ring-all-gather.xml", ('deps="-1"', 'deps="1"'), ":5", "deps 1 without depid"),
        ("ring-all-gather.xml", ('inplace="0"', 'inplace="true"'), ":2", "inplace must be 0 to 1"),
        (
            "ring-all-gather.xml",
            ('<tb id="1" send="-1"', '<tb id="1" send="1"'),
            ":10",
            "sends to GPU 1 on channel 0, as block 0 does",
        ),
        (
            "ring-all-gather.xml",
            ('o" dstoff="0" cnt="1"', 'o" dstoff="0" cnt="2"'),
            ":5",
            "reads 1 of buffer 'i' of GPU 0 before it is written",
        ),
    ],
)  # fmt: skip
def test_what_a_format_does_not_allow_is_refused_with_its_line(
    name: str, change: tuple[str, str], place: str, what: str
) -> None:
    text = SAMPLES[name].replace(*change)
    assert text != SAMPLES[name]
    with pytest.raises(Malformed) as refused:
        trace_in([text.encode()], given_to(name))
    assert refused.value.what.startswith(what), refused.value.what
    assert refused.value.place == place


@pytest.mark.parametrize(("protocol", "sent"), [("LL", 32_000_000), ("LL128", 17_066_667)])
def test_protocols_of_msccl_send_flags_with_the_data(protocol: str, sent: int) -> None:
    text = SAMPLES["ring-all-gather.xml"].replace("Simple", protocol)
    trace = trace_in([text.encode()], given_to("ring-all-gather.xml"))
    assert set(trace.size_bytes[trace.kind == Action.SEND].tolist()) == {sent}


def test_an_msccl_algorithm_needs_a_size() -> None:
    with pytest.raises(Malformed, match="needs a size"):
        trace_in([SAMPLES["ring-all-gather.xml"].encode()])


def test_an_msccl_algorithm_that_reduces_in_place() -> None:
    assert trace_in([REDUCE.encode()], GIVEN).total_bytes == 4 * 32_000_000
    twice = REDUCE.replace('"r" srcbuf="i" srcoff="1"', '"rrc" srcbuf="i" srcoff="1"')
    with pytest.raises(Malformed, match="adds chunk 1 of ranks 0, 1 to chunk 1 of ranks 0"):
        trace_in([twice.encode()], GIVEN)


def test_nodes_of_aicb_layers_are_counted_before_they_are_made() -> None:
    """What computes or communicates counts, in each of three passes."""
    layer = "x -1 1 NONE 0 5 ALLREDUCE 8 1 NONE 8 0\n"
    text = "HYBRID_TRANSFORMER_FWD_IN_BCKWD all_gpus: 65536\n"
    with peak_below(10_000_000), pytest.raises(Malformed, match="got 4063232 or more") as refused:
        trace_in([f"{text}40\n{layer * 40}".encode()])
    assert refused.value.place == ":33"
    with pytest.raises(Malformed, match="got 4200000 or more") as refused:
        trace_in([f"{text}700000\n".encode() + b"x\n" * 700_000])
    assert refused.value.place == ":2"


def test_steps_of_aicb_operations_are_counted_before_they_are_made() -> None:
    """A ring AllReduce has twice as many steps as pairs of ranks."""
    text = "HYBRID_TRANSFORMER_FWD_IN_BCKWD all_gpus: 65536\n1\n"
    text += "x -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 8 1\n"
    said = f"must have at most 2000000 steps, got {2 * 65536 * 65535}"
    with peak_below(10_000_000), pytest.raises(Malformed, match=said) as refused:
        trace_in([text.encode()])
    assert refused.value.place == ":3"


@pytest.mark.parametrize("text", [SAMPLES["layers.txt"], SAMPLES["pipeline.goal"], CONNECTIONS])
def test_steps_of_a_text_are_counted_as_its_replay_counts_them(text: str) -> None:
    most = trace_in([text.encode()], GIVEN).most_steps
    with patch.object(nodes, "MOST_STEPS", most):
        trace_in([text.encode()], GIVEN)
    said = f"must have at most {most - 1} steps"
    with patch.object(nodes, "MOST_STEPS", most - 1), pytest.raises(Malformed, match=said):
        trace_in([text.encode()], GIVEN)


def algorithm(collective: str, chunks: int, *gpus: str) -> bytes:
    """An algorithm of GPUs with so many chunks, each with these thread blocks."""
    sizes = f'i_chunks="{chunks}" o_chunks="{chunks}" s_chunks="0"'
    of_gpus = [f'<gpu id="{n}" {sizes}>\n{blocks}</gpu>\n' for n, blocks in enumerate(gpus)]
    first = (
        f'<algo coll="{collective}" ngpus="{len(gpus)}" nchunksperloop="{chunks}" inplace="0">\n'
    )
    return "".join([first, *of_gpus, "</algo>"]).encode()


def block(number: int, send: int, receive: int, *steps: str) -> str:
    """A thread block with these steps."""
    numbered = [step.replace("<step", f'<step s="{n}"') for n, step in enumerate(steps)]
    first = f'<tb id="{number}" send="{send}" recv="{receive}" chan="0">\n'
    return "".join([first, *numbered, "</tb>\n"])


def step(type_: str, source: str = "i", target: str = "o", after: int = -1, count: int = 1) -> str:
    """A step that touches the first chunks; it comes `after` the first step of a block."""
    depends = f'depid="{after}" deps="{min(after, 0)}"'
    places = f'srcbuf="{source}" srcoff="0" dstbuf="{target}" dstoff="0"'
    return f'<step type="{type_}" {places} cnt="{count}" {depends}/>\n'


def passed_on(after: int) -> bytes:
    """A broadcast: the second block of GPU 1 sends what its first one receives."""
    return algorithm(
        "broadcast",
        1,
        block(0, 1, -1, step("s")) + block(1, -1, -1, step("cpy")),
        block(0, -1, 0, step("r"))
        + block(1, 2, -1, step("nop", count=0), step("s", "o", "o", after)),
        block(0, -1, 1, step("r")),
    )


def test_an_msccl_algorithm_whose_steps_race_is_refused() -> None:
    assert len(trace_in([passed_on(0)], GIVEN)) == 6
    with pytest.raises(Malformed) as refused:
        trace_in([passed_on(-1)], GIVEN)
    what = "unordered access to 0 of buffer 'o' of GPU 1, with line 12"
    assert (refused.value.place, refused.value.what) == (":16", what)
    assert refused.value.hint == "make it wait for step 0 of block 0"


def test_a_race_is_told_by_its_place_and_by_the_step_to_wait_for() -> None:
    text = algorithm(
        "broadcast",
        1,
        block(0, 1, -1, step("s")) + block(1, -1, -1, step("cpy")),
        block(0, -1, 0, step("nop", count=0), step("r"))
        + block(1, 2, -1, step("nop", count=0), step("s", "o", "o")),
        block(0, -1, 1, step("r")),
    )
    with pytest.raises(Malformed, match="access to 0 of buffer 'o' of GPU 1") as refused:
        trace_in([text], GIVEN)
    assert refused.value.hint == "make it wait for step 1 of block 0"


def test_an_msccl_algorithm_that_overwrites_what_is_being_sent_is_refused() -> None:
    copies = [block(n, -1, -1, step("cpy")) for n in (1, 2)]
    with pytest.raises(Malformed, match="access to 0 of buffer 'o' of GPU 1"):
        trace_in([algorithm("broadcast", 1, copies[0], copies[0] + copies[1])], GIVEN)
    swapped = [
        block(0, 1 - n, -1, step("s")) + block(1, -1, 1 - n, step("r", "i", "i")) for n in (0, 1)
    ]
    with pytest.raises(Malformed, match="access to 0 of buffer 'i' of GPU"):
        trace_in([algorithm("broadcast", 1, *swapped)], GIVEN)


@pytest.mark.parametrize(
    ("collective", "chunks", "what"),
    [
        ("alltoall", 1, r"alltoall: 1 chunks .* cannot be divided equally among 2 GPUs"),
        ("reduce_scatter", 3, r"reducescatter: 3 chunks .* cannot be divided equally"),
        ("reducescatter", 2, r"reducescatter: GPU 0 ends with nothing at 0 of its output"),
        ("allreduce", 0, "nchunksperloop must be 1 to"),
    ],
)
def test_an_msccl_algorithm_without_a_result_is_refused(
    collective: str, chunks: int, what: str
) -> None:
    one_way = block(0, 1, -1, step("s")), block(0, -1, 0, step("r"))
    with pytest.raises(Malformed, match=what):
        trace_in([algorithm(collective, chunks, *one_way)], GIVEN)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (('i_chunks="1"', 'i_chunks="262144"'), "i_chunks of GPU 0 must be at most 1, got 262144"),
        (('nchunksperloop="4"', 'nchunksperloop="16777216"'), "nchunksperloop must be 1 to"),
    ],
)
def test_other_inputs_of_msccl_gpus_are_refused_before_they_cost_memory(
    change: tuple[str, str], what: str
) -> None:
    text = SAMPLES["ring-all-gather.xml"].replace(*change, 1)
    with peak_below(10_000_000), pytest.raises(Malformed, match=what):
        trace_in([text.encode()], GIVEN)


def test_collectives_with_a_root_have_their_result_at_the_root() -> None:
    """An AllGather is more than a Gather; its chunks are those of no Scatter, and not summed."""
    gathered = SAMPLES["ring-all-gather.xml"].replace("allgather", "gather")
    assert same(trace_in([gathered.encode()], GIVEN), sample("ring-all-gather.xml"))
    for other in ("scatter", "reduce"):
        wrong = SAMPLES["ring-all-gather.xml"].replace("allgather", other)
        with pytest.raises(Malformed, match=rf"{other}: GPU \d ends with"):
            trace_in([wrong.encode()], GIVEN)


def test_an_all_gather_in_place_has_its_input_in_its_output() -> None:
    """msccl-tools writes `i_chunks="0"` there: no step names the input."""
    assert trace_in([IN_PLACE.encode()], GIVEN).total_bytes == 64_000_000
    with pytest.raises(Malformed, match=r"reads 2 of buffer 'o' of GPU 0 before it is written"):
        trace_in([IN_PLACE.replace('srcoff="0"', 'srcoff="2"', 1).encode()], GIVEN)


def test_the_share_of_the_root_of_a_scatter_in_place_is_there() -> None:
    second = step("s").replace('srcoff="0"', 'srcoff="1"')
    text = algorithm("scatter", 2, block(0, 1, -1, second), block(0, -1, 0, step("r")))
    with pytest.raises(Malformed, match="scatter: GPU 0 ends with nothing at 0 of its output"):
        trace_in([text], GIVEN)
    assert trace_in([text.replace(b'inplace="0"', b'inplace="1"')], GIVEN).total_bytes


def test_text_behind_an_msccl_algorithm_is_no_step() -> None:
    behind = IN_PLACE + "Rank 0 chunk 0 is incorrect should be ReduceChunk index 0\n"
    trace = trace_in([behind.encode()], GIVEN)
    assert same(trace, trace_in([IN_PLACE.encode()], GIVEN))
    assert trace.left_out == ("text after the algorithm, from line 15 on",)


def test_both_ends_of_an_msccl_message_agree() -> None:
    ends = block(0, 1, -1, step("s")), block(0, -1, 0, step("r", count=2))
    what = "must receive 1 chunks, as many as line 4 sends, got 2"
    with pytest.raises(Malformed, match=what) as refused:
        trace_in([algorithm("broadcast", 2, *ends)], GIVEN)
    assert refused.value.place == ":9"


def test_unknown_attributes_of_msccl_are_told() -> None:
    text = SAMPLES["ring-all-gather.xml"].replace("hasdep", "mask")
    assert trace_in([text.encode()], GIVEN).left_out == ("attribute 'mask' of <step>, 20 times",)


def test_a_custom_msccl_collective_is_what_its_steps_are() -> None:
    """GPUs have inputs of other sizes; only the order of all accesses is proved."""
    text = algorithm("custom", 2, block(0, 1, -1, step("s")), block(0, -1, 0, step("r")))
    trace = trace_in([text], GIVEN)
    assert trace.total_bytes == 32_000_000
    assert trace.left_out == ("check of the result, which a custom collective does not name",)
    with pytest.raises(Malformed, match="unordered access"):
        trace_in([passed_on(-1).replace(b"broadcast", b"custom")], GIVEN)


def test_an_msccl_step_of_too_many_bytes_is_refused() -> None:
    sends = block(0, 1, -1, step("s", count=65535)), block(0, -1, 0, step("r", count=65535))
    with pytest.raises(Malformed, match="must be 0 to 281474976710656 bytes, got") as refused:
        trace_in([algorithm("broadcast", 65535, *sends)], Defaults(2, 2**48))
    assert refused.value.place == ":4"


def test_msccl_steps_that_a_proof_has_no_room_for_are_refused() -> None:
    with patch.object(msccl, "MOST_ENDS", 10), pytest.raises(Malformed, match="got 11"):
        trace_in([passed_on(0)], GIVEN)


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 60_000 + "x",
        "num_ranks 1\n" + "/*" * 100_000,
        "num_ranks 1\nrank 0 {\nsend 1b to 0" + " " * 100_000 + "x\n}\n",
        "1 " * 2_000_000,
        "A" * 100_000,
        "MICRO " + "a: 1 " * 20_000 + "!\n1\n",
        "<" * 100_000 + "<algo",
    ],
    ids=["empty-lines", "comments", "spaces", "numbers", "letters", "parameters", "brackets"],
)
def test_long_texts_are_refused(text: str) -> None:
    with pytest.raises(Malformed):
        trace_in([text.encode()], GIVEN)
