"""The largest fabrics that still follow the model, and the traffic that is carried at once."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from model.platforms import GBIT
from model.shaping import wire_bytes
from model.topology import LinkKind
from scenarios.benchmarks.rows import SIXTEEN, Row
from scenarios.experiment import Experiment, experiment
from scenarios.library import LIBRARY
from scenarios.loading import load
from scenarios.progress import Silent
from scenarios.runner import run
from testbed.marks import marked_run
from testbed.proxies import ProxyKind
from traffic_gen.program import Stream

# 256 GPUs, on the slowest links that can be shaped: an execution takes one to two minutes.
LARGEST = (
    "fabric.domains=32",
    "fabric.bandwidth_scale=400000",
    "workloads.0.size=8 MB",
    "workloads.1.size=8 MB",
    "repeats=1",
)
# 512 Mbit/s for each of 16 GPUs in its HB domain, and 64 Mbit/s on its NIC: 8.2 and 1.0 Gbit/s.
AT_ONCE = replace(
    SIXTEEN,
    platform="own",
    hb_rate_bps=512 * GBIT,
    nic_rate_bps=64 * GBIT,
    bandwidth_scale=1000,
)
AT_ONCE_S = 5
AT_ONCE_TRIALS = 3


def capacity(store: Path) -> Iterator[Row]:
    """Collectives on 64 containers and 256 processes; then, rings everywhere at once."""
    yield from _collectives(ProxyKind.CONTAINER, (), store)
    yield from _collectives(ProxyKind.PROCESS, LARGEST, store)
    yield from at_once()


def _collectives(proxies: ProxyKind, overrides: Sequence[str], store: Path) -> Iterator[Row]:
    scenario = load(LIBRARY / "capacity.yaml", list(overrides))
    for case in run(scenario, proxies, store, Silent())["cases"]:
        yield {
            "gpus": case["gpus"],
            "proxies": proxies.value,
            "collective": case["collective"],
            "algorithm": case["algorithm"],
            "measured_s": case["measured_s"]["median"],
            "modeled_s": case["modeled_s"],
            "ratio": case["ratio"],
            "verdict": case["verdict"],
            "reasons": case["reasons"],
        }


@dataclass(frozen=True)
class Ring:
    """A stream from every GPU to the next: of its HB domain, or of its rail."""

    kind: LinkKind
    domains: int
    rails: int

    def streams(self, fabric: Experiment) -> list[Stream]:
        """As many bytes as the links take some seconds for."""
        spec, kind = fabric.topology.spec, self.kind
        size = round(_rate_bps(fabric, kind) / 8 * AT_ONCE_S / wire_bytes(1))
        return [
            Stream(
                gpu.domain * spec.domain_size + gpu.rail,
                (gpu.domain + self.domains) % spec.domains * spec.domain_size
                + (gpu.rail + self.rails) % spec.domain_size,
                size,
            )
            for gpu in fabric.topology.gpus
        ]


RINGS = (Ring(LinkKind.HB, 0, 1), Ring(LinkKind.NIC, 1, 0))


def at_once() -> Iterator[Row]:
    """Rings in all HB domains and on all rails at the same time, each link full both ways."""
    mark_id = f"bench-{os.getpid()}-capacity"
    with marked_run(mark_id) as mark, experiment(AT_ONCE, ProxyKind.PROCESS, mark) as fabric:
        for number in range(1 + AT_ONCE_TRIALS):
            rows = list(_carried(fabric))
            if number:  # connections are warm
                yield from rows


def _carried(fabric: Experiment) -> Iterator[Row]:
    flows = [ring.streams(fabric) for ring in RINGS]
    addresses = fabric.layout.addresses()
    seconds = fabric.agents.carry([*flows[0], *flows[1]], addresses, 10 * AT_ONCE_S)
    parts = seconds[: len(flows[0])], seconds[len(flows[0]) :]
    for ring, streams, taken in zip(RINGS, flows, parts, strict=True):
        bits = 8 * wire_bytes(sum(stream.size_bytes for stream in streams))
        nominal_s = 8 * wire_bytes(streams[0].size_bytes) / _rate_bps(fabric, ring.kind)
        yield {
            "gpus": fabric.topology.spec.gpus,
            "proxies": ProxyKind.PROCESS.value,
            "collective": f"{ring.kind} rings, all at once",
            "carried_gbit_per_s": bits / max(taken) / 1e9,
            "nominal_gbit_per_s": bits / nominal_s / 1e9,
            "ratio": max(taken) / nominal_s,
        }


def _rate_bps(fabric: Experiment, kind: LinkKind) -> int:
    return fabric.topology.link_of(fabric.topology.gpus[0], kind).rate_bps
