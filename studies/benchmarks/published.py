"""The platform's time on paper, held against what others published; nothing is fitted.

`published.csv` has bus bandwidths by nccl-tests, with the addresses of the reports.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

from linux.files.program_files import rows_of
from model.fabric.build import build_topology
from model.fabric.spec import COMPARED, PLATFORMS, FabricKind, FabricSpec, HbNetwork
from model.prediction.closed_forms import RING_ALL_REDUCE, Grid
from model.prediction.platform_time import FRAMINGS, USUAL_FRAMING, USUAL_MTU, platform_time
from model.workload.transfers.collective import Collective
from scenarios.format.units import size_in_bytes
from scenarios.planning.on_paper import closed_time, link_latencies, work_on_paper
from scenarios.planning.plan import real_task
from studies.benchmarks.rows import Row, resized
from traffic_gen.workloads.algorithms.collectives import BUILT_IN, NCCL
from traffic_gen.workloads.sized_collective import SizedCollective

REPORTS = Path(__file__).with_suffix(".csv")
# Textbook: Thakur, Rabenseifner, Gropp (2005), a ring in 2(n-1) steps, without a domain of NVLink's
# rate in the way: bytes, bytes/s, and seconds of each link.
SIZE, BYTES_PER_S, LINK_S = 128 * 2**20, 50e9, 0.5e-6
TEXTBOOK_DOMAINS = (2, 128)
# ASTRA-sim, `tests/rt_template`: a ring of 8 NPUs, 1 MiB in 4 splits one after the other, links of
# 50 GB/s (of 2^30 bytes) and 500 ns. A reduction reads twice and writes once at 50 GB/s, and each
# message is handed over in 10 ns.
NPUS, NPU_BYTES, SPLITS, NPU_BYTES_PER_S, NPU_LATENCY_S = 8, 2**20, 4, 50 * 2**30, 500e-9
REDUCTION_S = 3 * NPU_BYTES / SPLITS / NPUS / 50e9
HANDED_OVER_S = 10e-9
ASTRA_SIM_S = 117_780e-9


def published(_store: Path) -> Iterator[Row]:
    """Yield the deviation of each published figure, and that of our own closed forms."""
    for domains in TEXTBOOK_DOMAINS:
        yield _textbook(domains)
    yield _closed_forms()
    yield {
        "against": "ASTRA-sim, ring",
        **_held(NPUS, "1 MiB", "ms", ASTRA_SIM_S * 1e3, astra_sim_s() * 1e3),
    }
    yield from map(_reported, rows_of(REPORTS))


def _held(gpus: int, size: str, unit: str, theirs: float, ours: float, date: str = "") -> Row:
    return {
        "gpus": gpus,
        "size": size,
        "unit": unit,
        "published": theirs,
        "on_paper": ours,
        "deviation": ours / theirs - 1,
        "date": date,
    }


def _textbook(domains: int) -> Row:
    gpus = 8 * domains
    seconds = 2 * (gpus - 1) * (SIZE / gpus / BYTES_PER_S + 2 * LINK_S)
    ring = SizedCollective(Collective.ALL_REDUCE, "ring", (domains, 8), SIZE)
    ours = work_on_paper(ring.name, ring, resized(domains, 8), FRAMINGS["none"](USUAL_MTU), LINK_S)
    held = _held(gpus, "128 MiB", "ms", seconds * 1e3, ours.completion_s * 1e3, "2005")
    return {"against": "textbook, ring", **held}


def _closed_forms() -> Row:
    """Return the closed form that is the farthest from its transfers, followed."""
    works = (SizedCollective(*named, (4, 8), SIZE) for named in sorted(BUILT_IN))
    followed = [work for work in works if not work.is_modeled]
    specs = [replace(resized(4, 8), kind=kind) for kind in COMPARED]
    rows = [
        _held(32, "128 MiB", "ms", *_closed_and_followed(work, spec))
        for work, spec in product(followed, specs)
    ]
    farthest = max(rows, key=lambda row: abs(row["deviation"]))
    return {"against": f"closed forms, the farthest of {len(rows)}", **farthest}


def _closed_and_followed(work: SizedCollective, spec: FabricSpec) -> tuple[float, float]:
    """Return milliseconds by the closed form, and of all transfers followed."""
    real, latencies = real_task(work, spec), link_latencies(spec)
    framing = FRAMINGS[USUAL_FRAMING](USUAL_MTU)
    followed = platform_time(work.transfers(), build_topology(real.spec), latencies, framing)
    closed = closed_time(real, latencies, framing)
    return 1e3 * closed.completion_s, 1e3 * followed.completion_s


def astra_sim_s() -> float:
    """Return the seconds of ASTRA-sim's regression case: steps, reductions, handing over."""
    grid = Grid(x=1, y=NPUS, hb=NPU_BYTES_PER_S, nic=NPU_BYTES_PER_S, nic_s=NPU_LATENCY_S)
    sent_s = RING_ALL_REDUCE.completion_s(FabricKind.RAIL_ONLY, grid, NPU_BYTES / SPLITS)
    handed_over_s = (RING_ALL_REDUCE.steps(grid) + 1) * HANDED_OVER_S
    return SPLITS * (sent_s + (NPUS - 1) * REDUCTION_S + handed_over_s)


def _reported(report: dict[str, str]) -> Row:
    domains, platform = int(report["domains"]), PLATFORMS[report["platform"]]
    of_dgx = resized(domains, platform.domain_size)
    spec = replace(
        of_dgx,
        kind=FabricKind.RAIL_OPTIMIZED,
        platform=platform.name,
        hb=HbNetwork(platform.hb_rate_bps),
        nic=replace(of_dgx.nic, rate_bps=platform.nic_rate_bps),
    )
    size = report["size"]
    named = Collective(report["collective"]), report["algorithm"]
    work = SizedCollective(*named, spec.job_shape, size_in_bytes(size))
    if report["algorithm"] == NCCL:
        work = work.chosen_by_nccl(spec)
    ours = work_on_paper(work.name, work, spec, FRAMINGS[report["framing"]](USUAL_MTU))
    assert ours.busbw is not None
    theirs, date = float(report["busbw_gbyte_per_s"]), report["date"]
    held = _held(spec.gpus, size, "GB/s", theirs, ours.busbw, date)
    facts = {"against": report["against"], "algorithm": work.algorithm}
    return {**facts, **held, "source": report["source"]}
