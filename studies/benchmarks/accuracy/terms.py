"""Work out the contribution of each term of the model, on ever slower links."""

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

from model.fabric.health import Epoch
from model.fabric.spec import FabricSpec
from model.fabric.topology import build_topology
from model.prediction.fluid import path_class, predict, transfer_paths
from model.prediction.terms import ALL, Terms
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.scenario import Case
from scenarios.workloads.schedules import case_schedule
from studies.benchmarks.common.rows import Row

# The quickstart's scale, and slower: NICs of 20, 5 and 1.25 Mbit/s.
SLOWER = (1, 4, 16)
# About the latency of an idle path on the machine of the figures.
LATENCY_S = 1e-4


def terms(_store: Path) -> Iterator[Row]:
    """Predict the quickstart's cases without each term in turn, with the same data at all rates.

    A term's figure is the share of the completion time that it adds.
    """
    for slower in SLOWER:
        scenario = load(LIBRARY / "quickstart.yaml", [f"fabric.bandwidth_scale={20_000 * slower}"])
        for case in scenario.cases:
            spec = scenario.spec_of(case.kind)
            yield {
                "nic_mbps": spec.emulated_nic_bps / 1e6,
                "case": case.name,
                **_worth(case, spec),
            }


def _worth(case: Case, spec: FabricSpec) -> Row:
    topology, schedule = build_topology(spec), case_schedule(case, spec)
    paths = transfer_paths(schedule.transfers, Epoch(topology), topology.job_gpus)
    kinds = {path_class(hops) for hops in paths if hops}

    def completion_s(present: Terms = ALL, latency_s: float = LATENCY_S) -> float:
        latencies = dict.fromkeys(kinds, latency_s)
        return predict(schedule, topology, latencies, terms=present).completion_s

    whole_s = completion_s()
    without = {
        term.name: completion_s(replace(ALL, **{term.name: False})) for term in fields(Terms)
    }
    without["latency"] = completion_s(latency_s=0.0)
    return {"modeled_s": whole_s} | {name: 1 - s / whole_s for name, s in without.items()}
