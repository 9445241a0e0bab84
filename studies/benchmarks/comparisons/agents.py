"""Compare the processor time of the agents with that of iperf3."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

from execution.cases.emulation import Experiment
from model.workload.transfers.collective import Collective
from studies.benchmarks.common.fabrics import bench_fabric
from studies.benchmarks.common.rows import SIXTEEN, Row
from testbed.nodes.gpu_proxies import ProxyKind
from traffic_gen.iperf3 import Hosts, Pair, bytes_by_pair, carry, rounds
from traffic_gen.workloads.sized_collective import SizedCollective

TRIALS = 3


def agents(_store: Path) -> Iterator[Row]:
    """Processor time of the agents and of iperf3, for the same bytes on the same links.

    The agents run already. So the start of iperf3's processes, measured with one byte for each
    pair, is shown apart, and the ratio leaves it out.
    """
    with bench_fabric("agents", SIXTEEN) as fabric:
        for collective, algorithm, size in (
            (Collective.ALL_GATHER, "hierarchical", 24_000_000),
            (Collective.ALL_TO_ALL, "two-step", 12_000_000),
        ):
            schedule = SizedCollective(collective, algorithm, (4, 4), size).steps()
            prediction = fabric.predict(schedule)
            repeats = list(fabric.repeats(schedule, prediction, 6, check_data=False))[1:]
            ours = median(repeat.agents_cpu_s for repeat in repeats)
            sizes = bytes_by_pair(schedule)
            theirs = median(iperf3_cpu_s(fabric, sizes) for _ in range(TRIALS))
            start = median(iperf3_cpu_s(fabric, dict.fromkeys(sizes, 1)) for _ in range(TRIALS))
            yield {
                "gpus": SIXTEEN.gpus,
                "proxies": ProxyKind.PROCESS.value,
                "collective": collective.value,
                "algorithm": algorithm,
                "bytes": sum(transfer.size_bytes for transfer in schedule.transfers),
                "agents_cpu_s": ours,
                "iperf3_cpu_s": theirs,
                "iperf3_start_cpu_s": start,
                "agents_over_iperf3": ours / (theirs - start),
            }


def iperf3_cpu_s(fabric: Experiment, sizes: Mapping[Pair, int]) -> float:
    """Processor time of iperf3 clients and servers that carry these bytes, their start included."""
    spec = fabric.topology.spec
    process_ids = [fabric.bed.proxies[gpu.name].process_id for gpu in fabric.topology.gpus]
    hosts = Hosts(process_ids, fabric.placement.addresses())
    return sum(
        flow.cpu_s
        for pairs in rounds(sizes, spec.domains, spec.domain_size)
        for flow in carry(hosts, {pair: sizes[pair] for pair in pairs})
    )
