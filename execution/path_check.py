"""Check that packets take the intended paths, by probes of all pairs and switches' counters."""

import os
from collections.abc import Iterator, Mapping
from itertools import chain

from execution.cases.emulation import Experiment, experiment
from execution.cases.progress import Listener
from model.fabric.addressing import rail_network
from model.fabric.spec import FabricKind
from model.fabric.topology import Topology
from model.routing.paths import Routing
from results.verdicts.path_check import (
    FabricCheck,
    IsolationCheck,
    Mismatch,
    isolation_check,
    mismatch,
)
from scenarios.scenario import Scenario
from testbed.nodes.gpu_proxies import ProxyKind
from testbed.nodes.openvswitch import RuleCount, rule_counters
from traffic_gen.probes.path_tracer import path_probes


def verify(scenario: Scenario, proxies: ProxyKind, listener: Listener) -> Iterator[FabricCheck]:
    """Bring up each fabric of a scenario, and check it."""
    for spec in scenario.fabrics:
        listener.step(f"{spec.kind}: {spec.gpus} GPUs come up")
        run_id = f"verify-{os.getpid()}-{spec.kind}"
        with experiment(spec, proxies, run_id, listener.step) as fabric:
            listener.step(f"{spec.kind}: the paths of all pairs")
            yield check_fabric(fabric)


def check_fabric(fabric: Experiment) -> FabricCheck:
    """Check paths and rail isolation of a fabric that is up and has no faults.

    Probes come first: without traffic, isolation would prove nothing.
    """
    pairs, mismatches = check_paths(fabric)
    return FabricCheck(fabric.topology.spec.kind, pairs, mismatches, check_isolation(fabric))


def check_paths(fabric: Experiment) -> tuple[int, list[Mismatch]]:
    """Return the number of ordered pairs, spare GPUs included, and those with stray probes."""
    routing, pairs, spec = Routing(fabric.topology), 0, fabric.topology.spec
    # The numbers that source ports of packets have; those without a rule of their own take path 0.
    paths = [k if k < spec.entropies else 0 for k in range(spec.entropy_mask + 1)]
    mismatches = []
    with path_probes(fabric.topology, fabric.bed.process_ids) as probes:
        for source in fabric.topology.gpus:
            for destination, traces in probes.traces(source):
                by_port = tuple(routing.path(source, destination, path) for path in paths)
                pairs += 1
                if found := mismatch(source, destination, by_port, traces):
                    mismatches.append(found)
    return pairs, mismatches


def check_isolation(fabric: Experiment) -> IsolationCheck:
    """Count the bytes within and across rails since start-up, where rails are to be isolated.

    Traffic for the rail of a GPU that is missing crosses from another rail.
    """
    topology, spec = fabric.topology, fabric.topology.spec
    if spec.routed_as is not FabricKind.RAIL_ONLY or spec.domains == 1 or spec.missing:
        return IsolationCheck()
    counted = rule_counters(fabric.bed.open_vswitch, topology.openflow_switches)
    return judge_isolation(topology, counted)


def judge_isolation(topology: Topology, counted: Mapping[str, list[RuleCount]]) -> IsolationCheck:
    """Divide the bytes that rules counted into those to the switch's own rails and all others.

    A rule whose destination is wider than one rail's network may match anything: it is foreign.
    """
    own = foreign = 0
    for switch, rules in counted.items():
        networks = [rail_network(rail) for rail in rails_of(topology, switch)]
        for rule in rules:
            if any(rule.destination.subnet_of(network) for network in networks):
                own += rule.bytes
            else:
                foreign += rule.bytes
    return isolation_check(own_bytes=own, foreign_bytes=foreign)


def rails_of(topology: Topology, switch: str) -> set[int]:
    """Local ranks of the GPUs whose NICs lead to a switch or to the switches below it."""
    below = [link.lower.node for link in topology.links_below(switch)]
    gpus = {gpu.rail for gpu in topology.gpus if topology.holder(gpu).name in below}
    leaves = (rails_of(topology, node) for node in below if node not in topology.gpu_by_name)
    return gpus | set(chain.from_iterable(leaves))
