"""Traces of other tools: what is read, how it is replayed, and what is refused."""

import bz2
import gc
import gzip
import lzma
import pickle
import random
import re
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from linux.machine.resources import memory_limited
from model.errors import InputError
from model.fabric.job_grid import JobGrid
from model.fabric.spec import FabricKind
from model.workload.trace import Action, Contradiction, Trace, matched
from model.workload.transfers.collective import Collective
from model.workload.transfers.columns import Rows
from model.workload.transfers.proof import ScheduleError
from tests.unit.fabrics import spec
from tests.unit.traces import peak_below, same, traces
from traffic_gen.traces import reading, replay
from traffic_gen.traces.formats import chakra, nodes, protobuf
from traffic_gen.traces.formats.chakra_writing import chakra_files
from traffic_gen.traces.formats.nodes import NO_DEFAULTS, Defaults, Malformed
from traffic_gen.traces.operations import ALGORITHM_OF, arranged
from traffic_gen.traces.rank_placement import PlacementRule, placed
from traffic_gen.traces.reading import (
    files_of,
    garbage_collection_disabled,
    read_trace,
    trace_in,
)
from traffic_gen.traces.replay import Replay, Replayed
from traffic_gen.workloads import task
from traffic_gen.workloads.sized_collective import SizedCollective

# A property takes some hundredths of a second for each trace.
FEW = settings(max_examples=40)
RULES = st.sampled_from(PlacementRule)
GRIDS = st.sampled_from([(1, 2), (2, 1), (2, 2), (3, 1), (2, 3)])
MESSAGES = traces(kinds=(Action.COMPUTE, Action.SEND, Action.RECEIVE))
# Often, all nodes have steps of their own.
OPERATIONS = traces(kinds=(Action.COMPUTE, Action.COLLECTIVE), fewest=2)
GOAL = """\
num_ranks 3
// a message that is passed on, and an answer meanwhile
rank 0 {
a: send 1000b to 1 tag 5 cpu 0 nic 0
b: calc 2000 cpu 1
b requires a
c: recv 10b from 1
c requires b
}
rank 1 {
a: recv 1000b from 0 tag 5
b: send 1000b to 2 tag 5
b requires a
c: send 10b to 0
c irequires b
}
rank 2 { /* the
end */
recv 1000b from 1 tag 5
}
"""


def replayed(trace: Trace, rule: PlacementRule, grid: tuple[int, int]) -> Replayed:
    """The steps of a trace on a grid of GPUs."""
    job = JobGrid(*grid)
    return Replay(trace, "x", placed(rule, trace.ranks, job), job).steps()


@FEW
@given(traces() | OPERATIONS, RULES, GRIDS, st.randoms(use_true_random=False))
def test_nothing_begins_before_what_it_comes_after_has_ended(
    trace: Trace, rule: PlacementRule, grid: tuple[int, int], chance: random.Random
) -> None:
    steps = replayed(trace, rule, grid)
    begins, ends = times(steps, chance)
    ended: dict[int, float] = {}
    for node in trace.order:
        deliveries, kind = steps.deliveries, trace.kind[node]
        before = max((ended[earlier] for earlier in trace.after_lists[node]), default=0.0)
        entries = list(deliveries.entries.lists())[node]
        for entry in entries:
            assert begins[entry] >= before
        if kind == Action.COLLECTIVE:
            own = [ends[step] for step in list(deliveries.ends.lists())[node]]
            ended[node] = max([before, *own])
        else:
            arrival = ended[trace.sent_by[node]] if kind == Action.RECEIVE else 0.0
            ended[node] = max([before, arrival, *(ends[entry] for entry in entries)])


def times(steps: Replayed, chance: random.Random) -> tuple[list[float], list[float]]:
    """When each step begins and ends, if each takes as long as chance has it."""
    begins: list[float] = []
    ends: list[float] = []
    for step in steps.transfers:
        waits = step.after if step.ready is None else (*step.after, step.ready)
        begins.append(max((ends[earlier] for earlier in waits), default=0.0))
        ends.append(begins[-1] + chance.random())
    return begins, ends


@FEW
@given(MESSAGES, RULES, GRIDS)
def test_every_byte_is_delivered(trace: Trace, rule: PlacementRule, grid: tuple[int, int]) -> None:
    steps, gpu_of = replayed(trace, rule, grid), placed(rule, trace.ranks, JobGrid(*grid))
    wanted = np.zeros((steps.gpus, steps.gpus), np.int64)
    sends = trace.kind == Action.SEND
    sizes = np.maximum(1, trace.size_bytes[sends])
    np.add.at(wanted, (gpu_of[trace.rank[sends]], gpu_of[trace.peer[sends]]), sizes)
    np.fill_diagonal(wanted, 0)
    found = np.zeros_like(wanted)
    sent = steps.transfers
    np.add.at(found, (sent.source, sent.destination), sent.size_bytes)
    assert (found == wanted).all()
    computed = np.rint(trace.seconds * 1e9).astype(np.int64).sum()
    assert sent.compute_ns.sum() == computed


@settings(max_examples=20)
@given(traces(kinds=[Action.COLLECTIVE]), st.sampled_from([1, 3, 1e9]))
def test_the_bytes_of_operations_are_those_of_their_collectives(
    trace: Trace, size_scale: float
) -> None:
    job = JobGrid(1, trace.ranks)
    found = Replay(trace, "x", np.arange(trace.ranks), job).steps(size_scale).transfers
    wanted = 0
    for one in trace.operations:
        how, shape = ALGORITHM_OF[one.collective], (1, len(one.ranks))
        if len(one.ranks) > 1:
            size_bytes = max(1, round(one.size_bytes / size_scale))
            alone = SizedCollective(one.collective, how, shape, size_bytes)
            wanted += alone.steps().transfers.size_bytes.sum()
    assert found.size_bytes.sum() == wanted


@FEW
@given(MESSAGES, st.data())
def test_a_step_that_does_not_wait_is_refused(trace: Trace, data: st.DataObject) -> None:
    steps = replayed(trace, PlacementRule.WRAP, (1, trace.ranks))
    after = steps.transfers.after
    assume(len(after.values))
    left = np.arange(len(after.values)) != data.draw(st.integers(0, len(after.values) - 1))
    fewer = Rows.grouped(after.values[left], after.row[left], len(after.lengths))
    with pytest.raises(ScheduleError):
        steps.deliveries.prove(replace(steps.transfers, after=fewer))


@FEW
@given(MESSAGES, st.data())
def test_other_bytes_are_refused(trace: Trace, data: st.DataObject) -> None:
    steps = replayed(trace, PlacementRule.WRAP, (1, trace.ranks))
    sizes = steps.transfers.size_bytes.copy()
    sizes[data.draw(st.integers(0, len(sizes) - 1))] += 1
    with pytest.raises(ScheduleError):
        steps.deliveries.prove(replace(steps.transfers, size_bytes=sizes))


@FEW
@given(traces())
def test_a_chakra_trace_reads_as_it_was_written(trace: Trace) -> None:
    assert same(trace_in(chakra_files(trace)), trace)


@FEW
@given(traces(), st.data())
def test_a_damaged_chakra_trace_is_refused_or_read(trace: Trace, data: st.DataObject) -> None:
    files = chakra_files(trace)
    chosen = data.draw(st.integers(0, len(files) - 1))
    files[chosen] = data.draw(damaged(files[chosen]))
    read_or_refused(files)


@FEW
@given(st.data())
def test_a_damaged_text_is_refused_or_read(data: st.DataObject) -> None:
    read_or_refused([data.draw(damaged(GOAL.encode()))])


def read_or_refused(files: list[bytes], defaults: Defaults = NO_DEFAULTS) -> None:
    """Nothing else happens than a trace, or an error with its place: none is a whole file."""
    try:
        trace_in(files, defaults)
    except Malformed as error:
        found = error
    else:
        return
    assert found.place[:1] in ("", ":")
    assert found.place or found.what.startswith("is ")


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """A content that is cut off, or has other bytes somewhere."""
    places = st.integers(0, len(content))
    return st.one_of(
        places.map(lambda end: content[:end]),
        st.tuples(places, st.integers(0, 4), st.binary(max_size=4)).map(
            lambda change: content[: change[0]] + change[2] + content[sum(change[:2]) :]
        ),
    )


def test_a_goal_schedule() -> None:
    trace = trace_in([GOAL.encode()])
    assert (trace.format, trace.ranks, trace.total_bytes) == ("GOAL", 3, 2010)
    assert trace.largest_bytes == 1000
    sent = replayed(trace, PlacementRule.WRAP, (1, 3)).transfers
    found = [(step.source, step.destination, step.size_bytes, step.after) for step in sent]
    assert sorted(found) == [
        (0, 0, 0, (0,)),  # computes when its message is confirmed
        (0, 1, 1000, ()),
        (1, 0, 10, (0,)),  # begins as soon as the other one does
        (1, 2, 1000, (0,)),
    ]
    assert sent.compute_ns.sum() == 2000
    closed = GOAL.replace("}\nrank 1 {", "} rank 1 {").replace("num_ranks 3", "num_ranks 4")
    assert len(trace_in([f"{closed}rank 3 {{ }}\n".encode()])) == len(trace)


def test_calculations_on_one_processor_take_turns() -> None:
    calculations = "calc 1\ncalc 2 cpu 0\ncalc 3 cpu 123456789012345678\n"
    messages = "send 1b to 1\n", "recv 1b from 0\n", "", ""
    ranks = [f"rank {r} {{\n{calculations}{more}}}\n" for r, more in enumerate(messages)]
    trace = trace_in([f"num_ranks 4\n{''.join(ranks)}".encode()])
    on = dict[tuple[int, int], list[int]]()
    for step in replayed(trace, PlacementRule.WRAP, (1, 2)).transfers:
        if step.is_compute:
            on.setdefault((step.source, step.processor), []).append(step.compute_ns)
    assert sorted(on.values()) == [[1, 2]] * 4 + [[3]] * 4


@pytest.mark.parametrize("simulated", [0, task.MOST_SIMULATED])
def test_an_estimate_has_the_time_of_all_turns(simulated: int) -> None:
    ranks = "rank 0 {\n%ssend 1b to 1\n}\nrank 1 {\nrecv 1b from 0\n}\n" % ("calc 50000000\n" * 40)
    trace, job = trace_in([f"num_ranks 2\n{ranks}".encode()]), JobGrid(1, 2)
    replay = Replay(trace, "x", placed(PlacementRule.WRAP, 2, job), job)
    with patch.object(task, "MOST_SIMULATED", simulated):
        found = task.followed(replay, spec(FabricKind.RAIL_ONLY, 1, 2)).profile
    assert found.completion_s == pytest.approx(2)


@pytest.mark.parametrize(
    ("change", "place", "what"),
    [
        (("cpu 0 nic 0", "cpu 0 cpu 1"), ":4", "duplicate processor or interface"),
        (("num_ranks 3", "num_ranks 1099511627776"), ":1", "must have 1 to 65536 ranks"),
        (("rank 2 {", "num_ranks 1\nrank 2 {"), ":17", "duplicate num_ranks"),
        (("rank 2 {", "rank 1 {"), ":17", "duplicate rank 1"),
        (("1 tag 5\n}\n", "1 tag 5\n"), ":19", "ends within rank 2"),
        (("num_ranks 3", "num_ranks 2"), ":12", "rank must be 0 to 1, got 2"),
        (("1000b to 1", "999999999999999999b to 1"), ":4", "must be 0 to"),
        (("calc 2000 cpu 1", "calc 99999999999999999"), ":5", "time must be at most a day"),
        (("calc 2000", "clac 2000"), ":5", "unknown statement 'b: clac 2000 cpu 1'"),
        (("b requires a\nc:", "b requires z\nc:"), ":6", "unknown label 'z'"),
        (("10b to 0", "10b to 2"), ":7", "receive of rank 0 from rank 1 has no send"),
        (
            ("c: recv 10b", "c: recv 9b"),
            ":7",
            "receives 9 bytes of the 10 that rank 1 sends in line 14",
        ),
        (("c: recv 10b", "c: calc 10 //"), ":14", "send of rank 1 to rank 0 has no receive"),
        (("recv 10b from 1", "recv 10b from -1"), ":7", "has the wildcard -1"),
        (("a: send", "b: send"), ":5", "duplicate label 'b'"),
        (("c requires b", "c requires b\nb requires c"), ":5", "is in a dependency cycle"),
    ],
)
def test_a_wrong_goal_schedule_is_refused_with_its_line(
    change: tuple[str, str], place: str, what: str
) -> None:
    text = GOAL.replace(*change)
    assert text != GOAL
    with pytest.raises(Malformed) as refused:
        trace_in([text.encode()])
    assert refused.value.place == place
    assert refused.value.what.startswith(what)


FOUR = JobGrid(2, 2)


def test_placements() -> None:
    assert placed(PlacementRule.WRAP, 6, FOUR).tolist() == [0, 1, 2, 3, 0, 1]
    assert placed(PlacementRule.BLOCK, 6, FOUR).tolist() == [0, 0, 1, 1, 2, 2]
    assert placed(PlacementRule.RAILS, 6, FOUR).tolist() == [0, 2, 1, 3, 0, 2]
    assert placed((3, 0), 2, FOUR).tolist() == [3, 0]
    with pytest.raises(ValueError, match="must list 2 GPUs, one for each rank, got 1"):
        placed((3,), 2, FOUR)
    with pytest.raises(ValueError, match="must be GPUs 0 to 3, got 4"):
        placed((3, 4), 2, FOUR)


@FEW
@given(st.sets(st.integers(0, 2), min_size=1), st.sets(st.integers(0, 2), min_size=1), st.data())
def test_ranks_that_fill_a_grid_are_arranged_on_it_from_the_first_one_on(
    domains: set[int], rails: set[int], data: st.DataObject
) -> None:
    """The first one is the root; rings cross domains along rails."""
    gpu_of = np.array([3 * domain + rail for domain in sorted(domains) for rail in sorted(rails)])
    ranks = data.draw(st.permutations(range(len(gpu_of))))
    order, shape = arranged(ranks, gpu_of, JobGrid(3, 3))
    assert shape == (len(domains), len(rails))
    assert (order[0], sorted(order)) == (ranks[0], sorted(ranks))
    domain, rail = (part.reshape(shape) for part in np.divmod(gpu_of[order], 3))
    assert (domain == domain[:, :1]).all()
    assert (rail == rail[:1]).all()
    if min(shape) > 1:
        assert arranged(ranks[1:], gpu_of, JobGrid(3, 3)) == (ranks[1:], (1, len(ranks) - 1))


def test_the_files_of_all_ranks_are_one_trace(tmp_path: Path) -> None:
    trace = trace_in([GOAL.encode()])
    for rank, content in enumerate(chakra_files(trace)):
        (tmp_path / f"pass.{rank}.et").write_bytes(content)
    assert same(read_trace(tmp_path), trace)
    assert same(read_trace(tmp_path / "pass.2.et"), trace)
    (tmp_path / "pass.1.et").write_bytes(chakra_files(trace)[1][:-3])
    with pytest.raises(InputError, match=r"pass\.1\.et: byte \d+: ends within a message"):
        read_trace(tmp_path)
    (tmp_path / "pass.1.et").write_text(GOAL)
    with pytest.raises(InputError, match=r"pass\.1\.et: byte 0: must begin with metadata"):
        read_trace(tmp_path)
    (tmp_path / "pass.1.et").unlink()
    with pytest.raises(InputError, match="file of rank 1 not found"):
        read_trace(tmp_path)


@pytest.mark.parametrize("form", ["pass.{}.et", "pass_rank{}.et", "pass-{}.et.gz", "pass_{}.json"])
def test_the_name_before_the_ranks_names_all_files(tmp_path: Path, form: str) -> None:
    files = [tmp_path / form.format(rank) for rank in range(3)]
    for other in (*files, tmp_path / "passes.0.et", tmp_path / "pass_x0.et"):
        other.touch()
    assert files_of(tmp_path / "pass") == files
    assert files_of(tmp_path / form[:5]) == files


def test_a_rank_stands_right_behind_the_letters_of_a_binary_file(tmp_path: Path) -> None:
    """JSON has names of other numbers, too, such as those of versions."""
    files = [tmp_path / f"npu{rank}.et" for rank in range(11)]
    for file in (*files, tmp_path / "v2.json"):
        file.touch()
    assert files_of(tmp_path) == files_of(files[10]) == files_of(tmp_path / "npu") == files
    assert files_of(tmp_path / "v2.json") == [tmp_path / "v2.json"]


def test_a_name_of_two_traces_is_refused(tmp_path: Path) -> None:
    for name in ("pass.0.et", "pass_rank0.et"):
        (tmp_path / name).touch()
    with pytest.raises(InputError, match="of one trace, got 2 traces"):
        files_of(tmp_path / "pass")


def test_small_files_of_a_trace_take_little_memory(tmp_path: Path) -> None:
    """Much less than the limit of the files of a trace."""
    for rank, content in enumerate(chakra_files(trace_in([GOAL.encode()]))):
        (tmp_path / f"pass.{rank}.et").write_bytes(content if rank else gzip.compress(content))
    read_trace(tmp_path)
    with memory_limited(reading.MOST_BYTES // 4), peak_below(reading.MOST_BYTES // 16):
        read_trace(tmp_path)


def test_a_file_of_a_rank_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / f"x.{2**40}.et").write_bytes(b"")
    with pytest.raises(
        InputError, match=r"rank 0 not found; 1 in the folder \(ranks are 0 to at most 65535\)"
    ):
        read_trace(tmp_path)


def test_a_format_of_one_file_is_not_read_from_the_files_of_ranks(tmp_path: Path) -> None:
    """The first of two plans would be replayed in place of the second one."""
    for number in (0, 1):
        (tmp_path / f"plan_{number}.json").write_text('{"collective": "allreduce", "gpus": []}')
    with pytest.raises(InputError, match=r"is one of 2 files, as of ranks; MSCCL\+\+ plan has"):
        read_trace(tmp_path / "plan_1.json")


def test_two_files_of_one_rank_are_refused(tmp_path: Path) -> None:
    for name in ("x.0.et", "x.00.et.gz"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(InputError, match=r"x\.00\.et\.gz: duplicate rank 0, also in x\.0\.et"):
        read_trace(tmp_path)


@pytest.mark.timeout(120)
def test_a_message_that_is_left_over_is_found_in_linear_time() -> None:
    count = 500_000
    kind = np.repeat([Action.SEND, Action.RECEIVE], [count + 1, count])
    rank = np.where(kind == Action.SEND, 0, 1)
    with pytest.raises(Contradiction, match="of rank 0 to rank 1 has no receive") as refused:
        matched(kind, rank, 1 - rank, np.zeros(len(kind), np.int64))
    assert refused.value.node == count


def test_a_chakra_trace_may_be_gzipped() -> None:
    files = chakra_files(trace_in([GOAL.encode()]))
    packed = [gzip.compress(content) for content in files]
    assert same(trace_in(packed), trace_in(files))
    with pytest.raises(Malformed, match="cannot be decompressed: Compressed file ended"):
        trace_in([packed[0], packed[1][:-9], packed[2]])
    assert same(trace_in([gzip.compress(GOAL.encode("utf-8-sig"))]), trace_in([GOAL.encode()]))


def test_all_members_of_a_gzipped_chakra_trace_are_read() -> None:
    files = chakra_files(trace_in([GOAL.encode()]))
    members = [gzip.compress(content[:20]) + gzip.compress(content[20:]) for content in files]
    assert same(trace_in(members), trace_in(files))
    with pytest.raises(Malformed, match="cannot be decompressed") as refused:
        trace_in([members[0], members[1] + b"more", members[2]])
    assert refused.value.file == 1


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_the_content_of_all_chakra_files_is_bounded(pack: Callable[[bytes], bytes]) -> None:
    files = [pack(content) for content in chakra_files(trace_in([GOAL.encode()]))]
    total = sum(map(len, chakra_files(trace_in([GOAL.encode()]))))
    with patch.object(reading, "MOST_BYTES", total):
        assert trace_in(files).ranks == 3
    for limit in (total - 1, 100):
        with (
            patch.object(reading, "MOST_BYTES", limit),
            pytest.raises(Malformed, match=f"must have at most {limit} bytes"),
        ):
            trace_in(files)


def test_a_text_takes_a_bounded_part_of_memory() -> None:
    with patch.object(reading, "MOST_TEXT_BYTES", len(GOAL)):
        assert trace_in([GOAL.encode()]).ranks == 3
        with pytest.raises(Malformed, match=f"text must have at most {len(GOAL)} bytes"):
            trace_in([GOAL.encode() + b" "])


def test_too_many_chakra_nodes_are_refused_in_the_file_that_has_them() -> None:
    files = chakra_files(trace_in([GOAL.encode()]))
    with patch.object(nodes, "MOST_NODES", 4), pytest.raises(Malformed) as refused:
        chakra.read_chakra(files, NO_DEFAULTS)
    assert refused.value.what.startswith("must have at most 4 nodes")
    assert refused.value.file == 1


def test_plain_chakra_files_count_before_gzipped_ones() -> None:
    first, *others = chakra_files(trace_in([GOAL.encode()]))
    for limit in (len(first) - 1, len(first) - 2):
        with (
            patch.object(reading, "MOST_BYTES", limit),
            pytest.raises(Malformed, match="decompressed files must have at most") as refused,
        ):
            trace_in([first, *map(gzip.compress, others)])
        assert refused.value.file == 0


def test_chakra_nodes_are_read_in_batches() -> None:
    files = chakra_files(trace_in([GOAL.encode()]))
    with patch.object(chakra, "BATCH_BYTES", 50):
        assert same(trace_in(files), trace_in([GOAL.encode()]))
        with (
            patch.object(chakra, "MOST_WAITS", 2),
            pytest.raises(Malformed, match="at most 2 dependencies"),
        ):
            trace_in(files)


def test_what_a_chakra_node_has_is_bounded_before_it_costs_memory() -> None:
    # Type 4, and a list of 21 million dependencies on the node 0, behind their lengths.
    node = b"\x18\x04\x2a\xc0\xde\x81\x0a" + bytes(21_000_000)
    content = b"\x07\x0a\x050.0.4" + b"\xc7\xde\x81\x0a" + node
    with (
        peak_below(100_000_000),
        pytest.raises(Malformed, match="lists must have at most 20000000 b"),
    ):
        trace_in([content])


def test_fields_that_chakra_nodes_have_together_are_bounded() -> None:
    files = chakra_files(trace_in([GOAL.encode()]))
    with (
        patch.object(protobuf, "MOST_FIELDS_TOGETHER", 50),
        pytest.raises(Malformed, match="at most 50 fields"),
    ):
        trace_in(files)


@pytest.mark.parametrize(
    ("text", "format_"),
    [
        ("#\n" + "0 1000000000 1000000000\n" * 3, "byte matrix"),
        ("\n\nnum_ranks 1\nrank 0 {\ncalc 1\n}\n", "GOAL"),
        ("\r\n\tnum_ranks 1\nrank 0 {\ncalc 1\n}\n", "GOAL"),
        ("\r\n\t123456789 1\n1 0\n", "byte matrix"),
    ],
)
def test_a_text_is_not_taken_for_a_chakra_trace(text: str, format_: str) -> None:
    assert trace_in([text.encode()]).format == format_


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello\n")
    with pytest.raises(InputError, match=r"x:1: unknown format of trace"):
        read_trace(tmp_path / "x")
    with pytest.raises(InputError, match="not found"):
        read_trace(tmp_path / "y")
    for empty in (b"", gzip.compress(b"")):
        (tmp_path / "z").write_bytes(empty)
        with pytest.raises(InputError, match="z: is empty"):
            read_trace(tmp_path / "z")


def tar_of(content: bytes) -> bytes:
    """An archive with a file."""
    whole = BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        member = tarfile.TarInfo("x.goal")
        member.size = len(content)
        archive.addfile(member, BytesIO(content))
    return whole.getvalue()


def zip_of(content: bytes) -> bytes:
    """An archive with a file."""
    whole = BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("x.goal", content)
    return whole.getvalue()


@pytest.mark.parametrize(
    ("pack", "what"),
    [
        (bz2.compress, "is bzip2 (decompress it, or compress it with gzip)"),
        (lzma.compress, "is xz (decompress it"),
        (lambda content: b"\x28\xb5\x2f\xfd" + content, "is Zstandard (decompress it"),
        (zip_of, "is a zip archive (unpack it)"),
        (tar_of, "is a tar archive (unpack it)"),
        (lambda content: gzip.compress(tar_of(content)), "is a tar archive (unpack it)"),
        (lambda _: pickle.dumps({}, 2), "is a pickle, as PyTorch's flight recorder writes it"),
        (lambda _: pickle.dumps({"entries": []}), "is a pickle"),
        (lambda content: b"7z\xbc\xaf\x27\x1c" + content, "is a 7z archive (unpack it)"),
        (lambda content: content.decode().encode("utf-16"), "is UTF-16 text (save it as UTF-8)"),
        (
            lambda content: b"\xfe\xff" + content.decode().encode("utf-16-be"),
            "is UTF-16 text (save it as UTF-8)",
        ),
        (
            lambda _: b"\x93NUMPY\x01\0v\0",
            "is an array of NumPy (save it as text, by `numpy.savetxt`)",
        ),
        (lambda _: b"SQLite format 3\0", "is a database of SQLite, as of Nsight Systems"),
    ],
)
def test_what_a_trace_is_packed_in_is_told(
    tmp_path: Path, pack: Callable[[bytes], bytes], what: str
) -> None:
    (tmp_path / "x").write_bytes(pack(GOAL.encode()))
    with pytest.raises(InputError, match=re.escape(f"x: {what}")):
        read_trace(tmp_path / "x")


def test_hidden_files_beside_those_of_ranks_are_no_trace(tmp_path: Path) -> None:
    """An archive of macOS has one, of attributes, beside each file."""
    files = chakra_files(trace_in([GOAL.encode()]))
    for rank, content in enumerate(files):
        (tmp_path / f"x.{rank}.et").write_bytes(content)
        (tmp_path / f"._x.{rank}.et").write_bytes(b"\0\x05\x16\x07\0\x02\0\0Mac OS X")
    assert same(read_trace(tmp_path), trace_in(files))
    with pytest.raises(InputError, match=r"\._x\.0\.et"):
        read_trace(tmp_path / "._x.0.et")


def test_what_memory_has_no_room_for_is_refused() -> None:
    every = range(5000)
    text = (
        "num_ranks 2\nrank 0 {\n"
        + "".join(f"r{n}: recv 1b from 1\n" for n in every)
        + "j: calc 0\n"
        + "".join(f"j requires r{n}\n" for n in every)
        + "".join(f"s{n}: send 1b to 1\ns{n} requires j\n" for n in every)
        + "}\nrank 1 {\n"
        + "send 1b to 0\nrecv 1b from 0\n" * 5000
        + "}\n"
    )
    with pytest.raises(ScheduleError, match="must have at most 20000000 dependencies"):
        replayed(trace_in([text.encode()]), PlacementRule.WRAP, (1, 2))


def test_steps_of_a_replay_are_counted_before_they_are_made() -> None:
    trace = trace_in(chakra_files(trace_in([GOAL.encode()])))
    assert replayed(trace, PlacementRule.WRAP, (1, 3))
    most = trace.most_steps - 1
    said = f"must have at most {most} steps, got {most + 1}"
    with patch.object(replay, "MOST_STEPS", most), pytest.raises(ScheduleError, match=said):
        replayed(trace, PlacementRule.WRAP, (1, 3))


def test_receives_in_a_row_count_what_they_wait_for_again() -> None:
    receives = [f"r{n}: recv 1b from 0\n" for n in range(5)]
    waits = [f"r{n} requires r{n - 1}\n" for n in range(1, 5)]
    sends = ["num_ranks 2\nrank 0 {\n", *["send 1b to 1\n"] * 5, "}\nrank 1 {\n"]
    trace = trace_in(["".join([*sends, *receives, *waits, "}\n"]).encode()])
    with patch.object(replay, "MOST_WAITS", 1 + 2 + 3 + 4 + 5):
        assert len(replayed(trace, PlacementRule.WRAP, (1, 2)).transfers) == 5
    with (
        patch.object(replay, "MOST_WAITS", 14),
        pytest.raises(ScheduleError, match="dependencies on transfers"),
    ):
        replayed(trace, PlacementRule.WRAP, (1, 2))


def test_operations_in_a_row_count_what_they_wait_for() -> None:
    made = nodes.Nodes(ranks=2)
    first, second = (made.collective(Collective.ALL_REDUCE, 8, (0, 1), 0) for _ in range(2))
    for rank in (0, 1):
        made.wait(second[rank], first[rank])
    trace = made.trace("made")
    ends = replayed(trace, PlacementRule.WRAP, (1, 2)).deliveries.ends
    waits = int(ends.lengths[list(first.values())].sum())
    assert waits > 1
    with patch.object(replay, "MOST_WAITS", waits):
        assert len(replayed(trace, PlacementRule.WRAP, (1, 2)).transfers) == 8
    with (
        patch.object(replay, "MOST_WAITS", waits - 1),
        pytest.raises(ScheduleError, match="dependencies on transfers"),
    ):
        replayed(trace, PlacementRule.WRAP, (1, 2))


def test_compute_of_more_than_a_day_is_refused() -> None:
    trace = trace_in([GOAL.encode()])
    with pytest.raises(ScheduleError, match="at most a day"):
        Replay(trace, "x", np.arange(3), JobGrid(1, 3)).steps(1.0, 1e12)


def test_a_barrier_has_no_size() -> None:
    # Id 0, type 7, and the attribute comm_type 9 (a barrier), behind the schema's version.
    node = b"\x18\x07\x52\x0d\x0a\x09comm_type\x48\x09"
    content = b"\x07\x0a\x050.0.4" + bytes([len(node)]) + node
    (operation,) = trace_in([content] * 3).operations
    assert (operation.collective, operation.size_bytes) == (Collective.ALL_REDUCE, 0)
    assert operation.ranks == (0, 1, 2)
    sized = node + b"\x52\x15\x0a\x09comm_size\x48" + b"\xff" * 8 + b"\x7f"
    (again,) = trace_in([b"\x07\x0a\x050.0.4" + bytes([len(sized)]) + sized] * 3).operations
    assert again == operation
    unsized = content.replace(b"\x48\x09", b"\x48\x00")
    with pytest.raises(Malformed, match="communication without comm_size"):
        trace_in([unsized] * 3)


@pytest.mark.parametrize("before", [True, False])
def test_garbage_is_searched_again_after_a_trace_is_read(
    before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after one that is refused, and only if it was before."""
    switched: list[str] = []
    monkeypatch.setattr(gc, "isenabled", lambda: before)
    for name in ("disable", "enable"):
        monkeypatch.setattr(gc, name, partial(switched.append, name))
    with pytest.raises(Malformed), garbage_collection_disabled():
        raise Malformed(":1", "is wrong")
    assert switched == (["disable", "enable"] if before else [])
