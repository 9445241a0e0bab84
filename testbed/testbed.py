"""The running testbed: everything of one fabric, brought up in order and taken down in reverse."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from mininet.net import Mininet
from pyroute2.netlink.exceptions import NetlinkError

from linux.files.program_files import MODULES_HERE, module_command
from linux.network.namespaces import private_namespace
from linux.processes.lifetime import Watch, reaper
from linux.processes.run_lock import RunLock
from model.errors import EmulationError
from model.fabric import addressing
from model.fabric.topology import Topology
from testbed.fabric.links import Links, open_links
from testbed.fabric.mininet_network import build_network, start_network
from testbed.fabric.packet_order import keep_flows_in_order
from testbed.nodes import controller_process
from testbed.nodes.controller_process import ControllerProcess
from testbed.nodes.datapath import default_datapath, require_datapath
from testbed.nodes.gpu_proxies import Proxy, ProxyKind, proxies
from testbed.nodes.openvswitch import OpenVSwitch, open_vswitch

# A part's socket may break a moment before the part has ended.
DEATH_TOLD_S = 0.3
CLEANUP = module_command("testbed.host.cleanup")


@dataclass(frozen=True)
class Testbed:
    """A fabric that is up: all rules confirmed, all shapers read back."""

    topology: Topology
    proxies: dict[str, Proxy]
    network: Mininet
    links: Links
    open_vswitch: OpenVSwitch
    controller: ControllerProcess
    watch: Watch

    @property
    def process_ids(self) -> dict[str, int]:
        """Process ids that hold the GPU proxies' network namespaces, by GPU name."""
        return {name: proxy.process_id for name, proxy in self.proxies.items()}


@contextmanager
def testbed(topology: Topology, kind: ProxyKind, agent: Path, lock: RunLock) -> Iterator[Testbed]:
    """Bring up a fabric; tear it down when the context or this process ends.

    Everything is in one unnamed network namespace. Proxies end when their socket closes, other
    processes when this one dies, and the namespace with its last process. What the Docker Engine
    has not started yet is left to a reaper.
    """
    datapath = topology.spec.datapath or default_datapath()
    require_datapath(datapath)
    names = [gpu.name for gpu in topology.gpus]
    environment = {**lock.environment, **MODULES_HERE}
    with (
        closing(Watch()) as watch,
        reaper(CLEANUP, lock.folder / "reaper.log", environment, watch),
        proxies(kind, names, agent, lock, watch) as hosts,
        private_namespace(),
        ExitStack() as parts,
    ):
        with deaths_told(watch):
            for proxy in hosts.values():
                watch.add(f"{proxy.gpu} (GPU proxy)", proxy.process_id, proxy.log)
            links = parts.enter_context(open_links(hosts, topology))
            controller = parts.enter_context(
                controller_process.controller(topology, links.process_ids, lock, watch)
            )
            switch = parts.enter_context(open_vswitch(lock, watch, datapath))
            with switch.explaining():
                network = build_network(links, switch)
                controller.wait_for_event("listening")
                start_network(network, links)
                keep_flows_in_order(topology, links.process_ids, switch.process_id)
                controller.wait_for_event("ready")
                if topology.spec.domains > 1:  # else all traffic stays in the one HB domain
                    sender = hosts[topology.gpus[0].name].process_id
                    switch.open_send_buffers(sender, addressing.nic_address(topology.domain(1)[0]))
        try:
            yield Testbed(topology, hosts, network, links, switch, controller, watch)
        finally:
            for node in network.hosts + network.switches:
                node.terminate()


@contextmanager
def deaths_told(watch: Watch) -> Iterator[None]:
    """Raise the death of a part instead of the errors that it causes elsewhere."""
    try:
        yield
    except (OSError, NetlinkError, EmulationError):
        end_s = time.monotonic() + DEATH_TOLD_S
        while time.monotonic() < end_s:
            watch.check()
            time.sleep(0.02)
        raise
