"""Traces and a network that other projects publish, and small ones of our own with their features.

The published ones are no part of this repository: they lie beside the checkout on some machines.
"""

from collections import Counter
from pathlib import Path

import pytest

from model.workload.trace import Trace
from model.workload.transfers.collective import Collective
from scenarios.format.networks.files import read_network
from traffic_gen.traces.formats.nodes import Defaults
from traffic_gen.traces.reading import read_trace

PUBLISHED = Path(__file__).parents[2].parent / "shared" / "samples"
RANKS, KIB, MIB = 4, 2**10, 2**20

MICRO = """\
MICRO
2
probe\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\tALLREDUCE\t4096\t1
probe\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\tALLTOALL\t8192\t1
"""
# Its ranks are the job's; what begins and ends an iteration is layers of its own.
ITERATION = """\
HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 checkpoints: 0 checkpoint_initiates: 0
3
norm\t-1\t0\tBROADCAST\t1024\t1\tNONE\t0\t1\tNONE\t0\t100
grad_norm\t-1\t1\tALLGATHER\t4096\t1\tNONE\t0\t1\tREDUCESCATTER\t8192\t100
mlp\t-1\t5000\tALLREDUCE\t2048\t7000\tALLREDUCE\t2048\t7000\tNONE\t0\t100
"""
NETWORK = """\
# Two hosts
topology: [ Switch, Ring ]  # Ring, Switch, FullyConnected

npus_count: [ 8, 2 ]
#bandwidth: [820 ]
bandwidth: [400, 50 ]  #
latency: [ 936.25, 1000 ]  # ns
"""
COMM_TYPES = {"all_reduce": 0, "all_gather": 2, "all_to_all": 6, "reduce_scatter": 7}


def found(trace: Trace) -> tuple[str, int, int, int]:
    """Format, ranks, nodes and bytes."""
    return trace.format, trace.ranks, len(trace), trace.total_bytes


def operations(trace: Trace) -> Counter[Collective]:
    return Counter(one.collective for one in trace.operations)


def chakra_node(rank: int, comm_type: int) -> bytes:
    """A collective operation of a MiB from each rank; the id 0 is left out, as protobuf does."""
    number = bytes([0x08, rank]) if rank else b""
    kind = b"\x52\x0d\x0a\x09comm_type\x48" + bytes([comm_type])
    return number + b"\x18\x07" + kind + b"\x52\x0f\x0a\x09comm_size\x48\x80\x80\x40"


def write_chakra(folder: Path, name: str) -> None:
    for rank in range(RANKS):
        node = chakra_node(rank, COMM_TYPES[name])
        content = b"\x07\x0a\x050.0.4" + bytes([len(node)]) + node
        (folder / f"{name}.{rank}.et").write_bytes(content)


@pytest.fixture
def published() -> Path:
    if not PUBLISHED.is_dir():
        pytest.skip(f"the published samples are not on this machine: no folder {PUBLISHED}")
    return PUBLISHED


def test_a_micro_benchmark_of_our_own(tmp_path: Path) -> None:
    (tmp_path / "micro.txt").write_text(MICRO)
    trace = read_trace(tmp_path / "micro.txt", Defaults(RANKS))
    assert found(trace) == ("AICB", RANKS, 2 * RANKS, 4096 + 8192)
    assert operations(trace) == {Collective.ALL_REDUCE: 1, Collective.ALL_TO_ALL: 1}


def test_an_iteration_of_our_own(tmp_path: Path) -> None:
    """Each operation is one of both groups of its kind; one layer computes, in each pass."""
    (tmp_path / "iteration.txt").write_text(ITERATION)
    trace = read_trace(tmp_path / "iteration.txt", Defaults(RANKS))
    size_bytes = 2 * (1024 + 4096 + 8192 + 2 * 2048)
    assert found(trace) == ("AICB", RANKS, (5 + 3) * RANKS, size_bytes)
    assert operations(trace) == {
        Collective.BROADCAST: 2,
        Collective.ALL_GATHER: 2,
        Collective.REDUCE_SCATTER: 2,
        Collective.ALL_REDUCE: 4,
    }


# An AllGather's size is that of what it has gathered.
CHAKRA = [
    ("all_reduce", Collective.ALL_REDUCE, MIB),
    ("all_gather", Collective.ALL_GATHER, RANKS * MIB),
    ("all_to_all", Collective.ALL_TO_ALL, MIB),
    ("reduce_scatter", Collective.REDUCE_SCATTER, MIB),
]


@pytest.mark.parametrize(("name", "collective", "size_bytes"), CHAKRA)
def test_a_chakra_trace_of_our_own(
    tmp_path: Path, name: str, collective: Collective, size_bytes: int
) -> None:
    write_chakra(tmp_path, name)
    trace = read_trace(tmp_path)
    assert found(trace) == ("Chakra", RANKS, RANKS, size_bytes)
    assert operations(trace) == {collective: 1}


@pytest.mark.parametrize(("name", "collective", "size_bytes"), CHAKRA)
def test_a_published_chakra_trace(
    published: Path, name: str, collective: Collective, size_bytes: int
) -> None:
    trace = read_trace(published / "chakra" / f"{name}_4npus")
    assert found(trace) == ("Chakra", RANKS, RANKS, size_bytes)
    assert operations(trace) == {collective: 1}


@pytest.mark.parametrize(
    ("name", "nodes", "size_bytes", "count"),
    [
        # Sizes from 4 KiB to 1 GiB, each twice the one before.
        ("all_reduce", 19 * RANKS, 2 * 2**30 - 4 * KIB, {Collective.ALL_REDUCE: 19}),
        ("all_to_all", 19 * RANKS, 2 * 2**30 - 4 * KIB, {Collective.ALL_TO_ALL: 19}),
        (
            "llama7b_tp2",
            334 * RANKS,
            58_925_858_848,
            {
                Collective.ALL_REDUCE: 278,
                Collective.BROADCAST: 2,
                Collective.ALL_GATHER: 2,
                Collective.REDUCE_SCATTER: 2,
            },
        ),
    ],
)
def test_a_published_workload_of_aicb(
    published: Path, name: str, nodes: int, size_bytes: int, count: dict[Collective, int]
) -> None:
    trace = read_trace(published / "aicb" / f"{name}.txt", Defaults(RANKS))
    assert found(trace) == ("AICB", RANKS, nodes, size_bytes)
    assert operations(trace) == count


# ASTRA-sim's 400 and 50 GB/s are of 2^30 bytes.
HOSTS = {
    "kinds": "rail-only",
    "domains": 2,
    "domain_size": 8,
    "hb_rate": "3435.9738368 Gbit/s",
    "nic_rate": "429.4967296 Gbit/s",
}


def test_a_network_of_our_own(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text(NETWORK)
    assert read_network(path) == {"topology": str(path)} | HOSTS


def test_a_published_network(published: Path) -> None:
    path = published / "astra-sim" / "hgx_h100_16gpu.yml"
    assert read_network(path) == {"topology": str(path)} | HOSTS
