"""A specification in JSON documents: flat, in the order of stored runs, and read back whole."""

import json
import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from linux.processes.lifetime import Watch
from model.fabric.build import build_topology
from model.fabric.shaping import Impairment, SwitchQueue
from model.fabric.spec import (
    PLACES,
    Datapath,
    FabricKind,
    FabricSpec,
    HbNetwork,
    NicNetwork,
    Spares,
    SpineSelection,
    flat,
    grouped,
)
from model.fabric.topology import Topology
from model.fabric.transport import Congestion, Recovery, Roce, Transport
from testbed.nodes.controller_process import ControllerProcess
from tests.unit.fabrics import topologies

# No two fields of a group have the same value.
SPEC = FabricSpec(
    kind=FabricKind.RAIL_ONLY,
    domains=5,
    domain_size=4,
    platform="own",
    hb=HbNetwork(3600, leaves=4, oversubscription=3.0, impairment=Impairment(0.001, 0.01)),
    nic=NicNetwork(
        400,
        spines=3,
        leaves=2,
        oversubscription=1.5,
        spine_selection=SpineSelection.HASH,
        impairment=Impairment(0.005, 0.02),
        queue=SwitchQueue(100_000, True, 1000, 50_000, 0.1),
    ),
    bandwidth_scale=2.5,
    seed=7,
    spares=Spares(domains=1, gpus=2, rail_switches=3),
    bucket_depth_s=0.02,
    grain_packets=8,
    window=2,
    datapath=Datapath.KERNEL,
    transport=Transport.ROCE,
    roce=Roce(
        mtu=1024,
        queue_pairs=4,
        split=True,
        congestion=Congestion.DCQCN,
        recovery=Recovery.SELECTIVE_REPEAT,
        window=64,
        timeout_s=0.5,
        retries=6,
    ),
)
# As runs have stored it from their beginning.
STORED = """\
{"kind": "rail-only", "domains": 5, "domain_size": 4, "platform": "own", "hb_rate_bps": 3600, \
"nic_rate_bps": 400, "bandwidth_scale": 2.5, "spines": 3, "oversubscription": 1.5, "seed": 7, \
"rail_leaves": 2, "spare_domains": 1, "spare_gpus": 2, "spare_rail_switches": 3, \
"bucket_depth_s": 0.02, "grain_packets": 8, "window": 2, "datapath": "kernel", \
"hb_delay_s": 0.001, "hb_loss": 0.01, \
"nic_delay_s": 0.005, "nic_loss": 0.02, "spine_selection": "hash", "hb_leaves": 4, \
"hb_oversubscription": 3.0, "nic_ports": 1, "planes": "bonded", "spread": "queue-pairs", \
"nics_per_domain": null, "pxn": false, "transport": "roce", "mtu": 1024, "queue_pairs": 4, \
"split_data": true, "congestion": "dcqcn", "recovery": "selective-repeat", "packet_window": 64, \
"retransmission_timeout_s": 0.5, "retries": 6, "buffer_bytes": 100000, "ecn": true, \
"kmin_bytes": 1000, "kmax_bytes": 50000, "pmax": 0.1, "missing": [], "links": []}"""
READER = TypeAdapter(FabricSpec)


def test_the_fields_are_those_of_stored_runs() -> None:
    assert json.dumps(flat(SPEC)) == STORED


@given(topologies(most_missing=3), st.sampled_from([None, *Datapath]))
def test_a_specification_survives_json(topology: Topology, datapath: Datapath | None) -> None:
    """Words would equal the members of an enumeration, and be none of them."""
    scale = float(topology.spec.bandwidth_scale)
    written = replace(topology.spec, datapath=datapath, bandwidth_scale=scale)
    stored = json.loads(json.dumps(flat(written)))
    assert repr(READER.validate_python(grouped(stored))) == repr(written)


def test_the_controller_gets_a_specification_whole_and_does_without_numpy(tmp_path: Path) -> None:
    topology, lock = build_topology(SPEC), SimpleNamespace(folder=tmp_path, environment={})
    assert topology.spec.grid.places.any()
    ControllerProcess(topology, {}, cast(Any, lock), Watch())
    content = (tmp_path / "controller" / "fabric.pickle").read_bytes()
    assert repr(pickle.loads(content)) == repr(SPEC)
    assert b"numpy" not in content


def test_every_field_is_in_the_digest() -> None:
    others = (replace(SPEC, seed=8), replace(SPEC, nic=replace(SPEC.nic, queue=SwitchQueue())))
    assert len({build_topology(one).digest for one in (SPEC, *others)}) == 3
    assert build_topology(replace(SPEC)).digest == build_topology(SPEC).digest


def test_a_stored_specification_is_read_whole() -> None:
    assert repr(READER.validate_python(grouped(json.loads(STORED)))) == repr(SPEC)


@pytest.mark.parametrize("name", PLACES)
def test_a_specification_without_one_of_its_fields_is_refused(name: str) -> None:
    fields = flat(SPEC)
    del fields[name]
    with pytest.raises(KeyError):
        grouped(fields)
