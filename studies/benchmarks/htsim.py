"""RoCE on a leaf-spine fabric with collisions of a hash, beside htsim's RoCE on the same matrices.

`htsim.csv` has microseconds by github.com/Broadcom/csg-htsim, commit 841d9e7, of seeds from 1 on:

    faketime -f '2026-01-01 00:00:00' htsim_roce -topo TOPO -tm MATRIX.cm -nodes 16 -mtu 4096
        -linkspeed 400000 -strat ecmp_host -paths 64 -end 100000 -seed SEED

The time is the seed of its path numbers. In TOPO, 4 leaf switches, the rails, have 4 hosts each and
a link to each spine switch, all of 400 Gbit/s and 1 ns. No two GPUs of an HB domain send to each
other; the ring here is on one rail of 16 GPUs. Ports with 15 packets pause their senders, in the
column `unpaused` with 3500 (`-q 4000 -pfc_thresholds 3000 3500`). Queue pairs are connections.
Emulated is the first seed, beside the model by the same hash. This writes the matrices:

    python -m studies.benchmarks.htsim FOLDER
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

from execution.cases.progress import SILENT
from execution.run import run
from linux.files.program_files import rows_of
from linux.files.user_files import write_text
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.planning.plan import predicted_profile
from scenarios.scenario import Scenario
from studies.benchmarks.rows import Row, part
from testbed.nodes.gpu_proxies import ProxyKind

HOSTS, LEAF, RING = 16, 4, "ring"
# 2.5 Mbit/s a NIC: packets of 16 GPUs keep no processor busy, not even the virtual clock's.
SCALE = 160_000
# What a NIC sends or receives: 78 us at 400 Gbit/s, with headers.
NIC_BYTES, SENDERS, STEPS = 3_840_000, 8, range(2 * (HOSTS - 1))
CASES = Path(__file__).with_suffix(".csv")


def matrix(case: dict[str, str]) -> Iterator[str]:
    """Yield the lines of a connection matrix: all begin at once, but the steps of a ring."""
    hosts = range(HOSTS)
    pairs = {
        RING: [((at + step) % HOSTS, (at + step + 1) % HOSTS) for at in hosts for step in STEPS],
        "incast": [(host, 0) for host in hosts if host % LEAF][-SENDERS:],
        "permutation": [
            (host, (host + LEAF) % HOSTS // LEAF * LEAF + (host + 1) % LEAF) for host in hosts
        ],
        "all-to-all": [
            (one, other) for one, other in permutations(hosts, 2) if (one - other) % LEAF
        ],
    }[case["matrix"]] * int(case["queue_pairs"])
    size = NIC_BYTES // max(Counter(sink for _, sink in pairs).values())
    triggers = (len(pairs) - HOSTS) * (case["matrix"] == RING)
    yield from (f"Nodes {HOSTS}", f"Connections {len(pairs)}", f"Triggers {triggers}")
    for number, (source, sink) in enumerate(pairs):
        step, fired = number % len(STEPS), number - number // len(STEPS)
        begin = f"trigger {fired}" if triggers and step else "start 0"
        then = f" send_done_trigger {fired + 1}" if triggers and step + 1 < len(STEPS) else ""
        yield f"{source}->{sink} id {number + 1} {begin} size {size}{then}"
    yield from (f"trigger id {number + 1} oneshot" for number in range(triggers))


def htsim(store: Path) -> Iterator[Row]:
    """Yield a row for each case: times of all seeds by htsim and by the model, one emulated."""
    for case in rows_of(CASES):
        facts = {
            "matrix": case["matrix"],
            "spines": int(case["spines"]),
            "queue_pairs": int(case["queue_pairs"]),
        }
        yield from part(_compared(case, store), **facts)


def _compared(case: dict[str, str], store: Path) -> Iterator[Row]:
    us, unpaused = ([float(us) for us in case[key].split()] for key in ("us", "unpaused"))
    with TemporaryDirectory() as folder:
        seeds = range(1, len(us) + 1)
        scenarios = [_scenario(case, seed, Path(folder)) for seed in seeds]
        (emulated,) = run(scenarios[0], ProxyKind.PROCESS, store, SILENT)["cases"]
    modeled = [
        1e6 * predicted_profile(scenario.cases[0], scenario.fabrics[0]).completion_s / SCALE
        for scenario in scenarios
    ]
    yield {
        "seeds": len(us),
        "htsim_us": _range(us),
        "unpaused_us": mean(unpaused),
        "modeled_us": _range(modeled),
        "deviation": mean(modeled) / mean(us) - 1,
        "emulated_us": 1e6 * emulated["real_s"],
        "ratio": emulated["ratio"],
        "repeated": emulated["retransmits"],
    }


def _range(times: Sequence[float]) -> str:
    return f"{mean(times):.1f} ({min(times):.1f}-{max(times):.1f})"


def _scenario(case: dict[str, str], seed: int, folder: Path) -> Scenario:
    """Load a case on the fabric of a seed."""
    domains, domain_size = HOSTS // LEAF, LEAF
    if case["matrix"] == RING:
        domains, domain_size = HOSTS, 1
        size = f"{NIC_BYTES * HOSTS // len(STEPS)} B"
        work = f"collective: all-reduce, algorithm: ring, size: {size}"
    else:
        path = folder / f"{case['matrix']}-{case['queue_pairs']}.cm"
        write_text(path, "\n".join(matrix(case)))
        work = f"trace: '{path.absolute()}', placement: rails"
    changes = {
        "seed": seed,
        "workloads": f"[{{{work}}}]",
        "fabric.domains": domains,
        "fabric.domain_size": domain_size,
        "fabric.spines": case["spines"],
        "fabric.oversubscription": LEAF // int(case["spines"]),
        "fabric.bandwidth_scale": SCALE,
        "fabric.roce": f"{{queue_pairs: {case['queue_pairs']}}}",
    }
    return load(
        LIBRARY / "roce-permutation.yaml", [f"{key}={value}" for key, value in changes.items()]
    )


if __name__ == "__main__":
    for one in rows_of(CASES):
        path = Path(sys.argv[1]) / f"{one['matrix']}-{one['queue_pairs']}.cm"
        write_text(path, "\n".join([*matrix(one), ""]))
