"""Both ends of every HB link steer packets, to the core of their HB switch."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace

import pytest

from model.fabric.spec import FabricKind
from model.fabric.topology import LinkKind
from testbed.nodes.gpu_proxies import ProxyKind
from tests.integration.fabrics import fabric_up, small_spec

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

READ = "mount -t sysfs none /sys && grep -H . /sys/class/net/*/queues/rx-*/rps_cpus"


def cores_of_interfaces(process_id: int) -> dict[str, int]:
    """The cores of each interface in the network namespace of a process, a bit each."""
    enter = ["nsenter", "-t", str(process_id), "-n", "unshare", "-m", "sh", "-c", READ]
    found = subprocess.run(enter, check=True, capture_output=True, text=True).stdout
    lines = (line.split("/queues/rx-0/rps_cpus:") for line in found.split())
    return {place.rpartition("/")[2]: int(mask.replace(",", ""), 16) for place, mask in lines}


@pytest.mark.parametrize("kind", ProxyKind)
def test_hb_links_and_trunks_steer_packets_and_nic_links_do_not(kind: ProxyKind) -> None:
    plain = small_spec(FabricKind.RAIL_OPTIMIZED)
    spec = replace(plain, hb=replace(plain.hb, leaves=2))
    with fabric_up(spec, kind) as fabric:
        topology = fabric.topology
        wanted = bits_of_switches((*topology.hb_leaves, *topology.hb_switches))
        for gpu in topology.gpus:
            bits = wanted[topology.link_of(gpu, LinkKind.HB).upper.node]
            found = cores_of_interfaces(fabric.bed.process_ids[gpu.name])
            assert found == {"lo": 0, "hb0": bits, "nic0": 0}
        found = cores_of_interfaces(fabric.bed.open_vswitch.process_id)
        for link in topology.links:
            assert found[link.upper.interface] == wanted.get(link.upper.node, 0), link.name


def bits_of_switches(names: Sequence[str]) -> dict[str, int]:
    """The core of each HB switch, as bits; none on a machine of one core."""
    cores = sorted(os.sched_getaffinity(0))
    bits = [1 << core for core in cores] if len(cores) > 1 else [0]
    return {name: bits[place % len(bits)] for place, name in enumerate(names)}
