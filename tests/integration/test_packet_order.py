"""Both ends of every HB link steer packets, each flow to one core."""

import os
import subprocess
from dataclasses import replace

import pytest

from linux.network.packet_steering import core_mask
from model.fabric.spec import FabricKind
from testbed.nodes.gpu_proxies import ProxyKind
from tests.integration.fabrics import fabric_up, small_spec

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

READ = "mount -t sysfs none /sys && grep -H . /sys/class/net/*/queues/rx-*/rps_cpus"


def cores_of_interfaces(process_id: int) -> dict[str, int]:
    """The cores of each interface in the network namespace of a process, a bit each."""
    enter = ["nsenter", "-t", str(process_id), "-n", "unshare", "-m", "sh", "-c", READ]
    found = subprocess.run(enter, check=True, capture_output=True, text=True).stdout
    lines = (line.split("/queues/rx-0/rps_cpus:") for line in found.split())
    return {place.rpartition("/")[2]: bits_of(mask) for place, mask in lines}


def bits_of(mask: str) -> int:
    """A set of cores in the kernel's form, as bits."""
    return int(mask.replace(",", ""), 16)


@pytest.mark.parametrize("kind", ProxyKind)
def test_hb_links_and_trunks_steer_packets_and_nic_links_do_not(kind: ProxyKind) -> None:
    cores = os.sched_getaffinity(0)
    all_cores = bits_of(core_mask(cores)) if len(cores) > 1 else 0
    plain = small_spec(FabricKind.RAIL_OPTIMIZED)
    spec = replace(plain, hb=replace(plain.hb, leaves=2))
    with fabric_up(spec, kind) as fabric:
        for process_id in fabric.bed.process_ids.values():
            assert cores_of_interfaces(process_id) == {"lo": 0, "hb0": all_cores, "nic0": 0}
        found = cores_of_interfaces(fabric.bed.open_vswitch.process_id)
        for link in fabric.topology.links:
            wanted = all_cores if link.kind.startswith("hb") else 0
            assert found[link.upper.interface] == wanted, link.name
