"""The page's drawing of a fabric: rails as columns, HB domains as rows."""

from collections.abc import Iterator
from typing import Any

from execution.session.fault_words import modes, targets
from model.fabric.topology import NodeKind, Topology
from model.faults import Component, FaultMode


def picture(topology: Topology) -> dict[str, Any]:
    """The JSON object of a fabric's nodes and links, links in the topology's order.

    Columns are local ranks, rows are domains; rail switches stand above their column.
    """
    spec = topology.spec
    return {
        "kind": spec.kind.value,
        "domains": spec.domains,
        "domain_size": spec.domain_size,
        "scale": spec.bandwidth_scale,
        "nodes": list(_nodes(topology)),
        "links": [
            {
                "name": link.name,
                "kind": link.kind.value,
                "lower": link.lower.node,
                "upper": link.upper.node,
                "rate_bps": link.rate_bps,
            }
            for link in topology.links
        ],
        "modes": {name: _modes(kind) for name, kind in targets(topology).items()},
    }


def _modes(component: Component) -> list[str]:
    """The modes that a click can choose; degrading a link is not among them, as it needs a rate."""
    return [mode.value for mode in modes(component) if mode is not FaultMode.DEGRADE]


def _hb_switch(topology: Topology, name: str, level: int) -> dict[str, Any]:
    """An HB switch below the GPUs that it serves, of the second level below its leaves."""
    gpus = [gpu for link in topology.links_below(name) for gpu in topology.gpus_below(link)]
    return {
        "name": name,
        "kind": NodeKind.HB_SWITCH.value,
        "row": gpus[0].domain,
        "column": None,
        "first": gpus[0].rail,
        "columns": len(gpus),
        "level": level if topology.hb_leaves else 0,
    }


def _nodes(topology: Topology) -> Iterator[dict[str, Any]]:
    for gpu in topology.gpus:
        yield {"name": gpu.name, "kind": NodeKind.GPU.value, "row": gpu.domain, "column": gpu.rail}
    for level, names in enumerate((topology.hb_leaves, topology.hb_switches)):
        yield from (_hb_switch(topology, name, level) for name in names)
    for switch in topology.switches:
        yield {
            "name": switch.name,
            "kind": switch.kind.value,
            "row": None,
            "column": switch.rail,
            "index": switch.index,
        }
