"""The controller as a process, against a private Open vSwitch and bare proxies, without a fabric.

No packet flows here: what is asked of a switch and of a proxy's kernel is read back from them.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from controller.desired import Route, desired_state
from controller.rtnetlink import PROTOCOL
from model import addressing
from model.fabric import FabricKind
from model.topology import Gpu, Topology, build_topology
from testbed.controller_process import read_journal
from testbed.openvswitch import CONTROLLER, SCHEMA
from testbed.processes import last_words, running
from tests.machine import wait_until
from tests.unit.fabrics import spec

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

ROOT = Path(__file__).resolve().parents[2]
KINDS = pytest.mark.parametrize("kind", FabricKind)
SOFTWARE_ERROR = 70  # EX_SOFTWARE of sysexits.h


class Bench:
    """Switches and proxies in namespaces of their own, and a controller that comes and goes."""

    def __init__(self, topology: Topology, folder: Path, stack: ExitStack) -> None:
        self.topology = topology
        self.folder = folder
        self.stack = stack
        self.home = self._namespace("home")
        self.inside("ip", "link", "set", "lo", "up")
        self.proxies = {gpu.name: self._proxy(gpu) for gpu in topology.gpus}
        self._start_open_vswitch()

    def _namespace(self, name: str) -> int:
        """The process id of something that sleeps in a new network namespace."""
        command = ["unshare", "--net", "sleep", "infinity"]
        process = self.stack.enter_context(running(command, self.folder / f"{name}.log", {}))
        own = os.readlink("/proc/self/ns/net")
        namespace = f"/proc/{process.pid}/ns/net"
        wait_until(lambda: os.readlink(namespace) != own, f"{name} has a namespace of its own")
        return process.pid

    def _proxy(self, gpu: Gpu) -> int:
        """A namespace with the interfaces and addresses of a GPU proxy, joined to nothing."""
        process_id = self._namespace(gpu.name)
        hb = f"{addressing.hb_address(gpu)}/{addressing.DOMAIN_PREFIX}"
        for interface, address in (("hb0", hb), ("nic0", f"{addressing.nic_address(gpu)}/32")):
            for words in (
                f"link add {interface} type veth peer name {interface}-peer",
                f"address add {address} dev {interface}",
                f"link set {interface} up",
                f"link set {interface}-peer up",
            ):
                self.inside("ip", *words.split(), process_id=process_id)
        return process_id

    def _start_open_vswitch(self) -> None:
        """A database and a daemon; its bridges are there, but know of no controller."""
        places = dict.fromkeys(("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR"), str(self.folder))
        database, self.remote = self.folder / "conf.db", f"unix:{self.folder}/db.sock"
        self.inside("ovsdb-tool", "create", str(database), str(SCHEMA))
        self._run(["ovsdb-server", f"--remote=p{self.remote}", str(database)], "db", places)
        wait_until((self.folder / "db.sock").exists, "the database opens its socket")
        self.inside("ovs-vsctl", "--no-wait", f"--db={self.remote}", "init")
        self._run(["ovs-vswitchd", self.remote], "switch", places)
        for name in self.topology.openflow_switches:
            self.vsctl(
                *f"add-br {name} -- set bridge {name} datapath_type=netdev fail_mode=secure "
                "protocols=OpenFlow13 other_config:disable-in-band=true "
                f"other_config:datapath-id={self.topology.datapath_id(name):016x}".split()
            )

    def _run(self, command: list[str], name: str, environment: dict[str, str]) -> Any:
        words = ["nsenter", f"--target={self.home}", "--net", *command]
        log = self.folder / f"{name}.log"
        return self.stack.enter_context(running(words, log, environment))

    def inside(self, *command: str, process_id: int | None = None) -> str:
        """Run a command in a namespace, by default that of switches and controller."""
        words = ["nsenter", f"--target={process_id or self.home}", "--net", *command]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def vsctl(self, *words: str) -> None:
        """Change the switches' configuration."""
        self.inside("ovs-vsctl", f"--db={self.remote}", *words)

    def ofctl(self, verb: str, switch: str, *words: str) -> str:
        """Speak OpenFlow with a switch, past the controller."""
        return self.inside(
            "ovs-ofctl", "-OOpenFlow13", verb, f"unix:{self.folder}/{switch}.mgmt", *words
        )

    def controller(self, name: str, *limits: str) -> "Controller":
        """Start a controller; `name` tells it from others of the same test."""
        fabric, proxies = self.folder / "fabric.json", self.folder / "proxies.json"
        fabric.write_text(json.dumps(asdict(self.topology.spec)))
        proxies.write_text(json.dumps(self.proxies))
        journal = self.folder / f"{name}.jsonl"
        files = [f"--fabric={fabric}", f"--proxies={proxies}", f"--journal={journal}"]
        command = ["prlimit", *limits, sys.executable, "-m", "controller", *files]
        process = self._run(command, name, {"PYTHONPATH": str(ROOT)})
        return Controller(process, journal, self.folder / f"{name}.log")

    def ready(self, name: str, *limits: str) -> "Controller":
        """A controller that all switches are connected to, and that is done."""
        controller = self.controller(name, *limits)
        controller.wait_for("listening")
        for switch in self.topology.openflow_switches:
            # OVS takes a target that is already set as no change: it keeps trying.
            self.vsctl("set-controller", switch, CONTROLLER)
        controller.wait_for("ready")
        return controller

    def rules(self, switch: str) -> dict[str, str]:
        """Actions by destination, as the switch tells them."""
        lines = [
            line for line in self.ofctl("dump-flows", switch).splitlines() if "nw_dst=" in line
        ]
        return {
            line.split("nw_dst=")[1].split()[0]: line.split("actions=")[1].strip() for line in lines
        }

    def wanted_rules(self, switch: str) -> dict[str, str]:
        """Actions by destination, as `ovs-ofctl` would print the desired rules."""
        return {
            str(rule.destination).removesuffix("/32"): (
                f"set_field:{rule.hardware_address}->eth_dst," if rule.hardware_address else ""
            )
            + f"output:{rule.port}"
            for rule in desired_state(self.topology).rules[switch]
        }

    def routes(self, gpu: Gpu) -> frozenset[Route]:
        """The routes of ours in a proxy, as `ip route` tells them."""
        process_id = self.proxies[gpu.name]
        shown = self.inside(
            "ip", "-json", "route", "show", "proto", str(PROTOCOL), process_id=process_id
        )
        return frozenset(
            Route(
                destination=IPv4Network(route["dst"]),
                gateway=IPv4Address(route["gateway"]),
                interface=route["dev"],
                source=IPv4Address(route["prefsrc"]),
            )
            for route in json.loads(shown)
        )


class Controller:
    """A controller's process and its journal."""

    def __init__(self, process: "subprocess.Popen[bytes]", journal: Path, log: Path) -> None:
        self.process = process
        self.journal = journal
        self.log = log

    def events(self, event: str) -> list[dict[str, Any]]:
        """The journal's lines of one kind, oldest first."""
        return [line for line in read_journal(self.journal) if line["event"] == event]

    def wait_for(self, event: str) -> None:
        """Wait for a line in the journal; the controller must live on until then."""

        def seen() -> bool:
            assert self.process.poll() is None, last_words(self.log)
            return bool(self.events(event))

        wait_until(seen, f"the journal says {event}: {read_journal(self.journal)}")

    def kill(self) -> None:
        """End it without warning."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def sent(self) -> dict[str, tuple[int, int]]:
        """How many rules were added and removed, by switch."""
        return {line["switch"]: (line["added"], line["removed"]) for line in self.events("sent")}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What was started last ends first."""
    with ExitStack() as started:
        yield started


@KINDS
def test_switches_and_proxies_have_exactly_what_is_desired(
    kind: FabricKind, tmp_path: Path, stack: ExitStack
) -> None:
    bench = Bench(build_topology(spec(kind, 3, 2, 2)), tmp_path, stack)
    bench.ready("first")
    for switch in bench.topology.openflow_switches:
        assert bench.rules(switch) == bench.wanted_rules(switch)
    for gpu in bench.topology.gpus:
        assert bench.routes(gpu) == desired_state(bench.topology).routes[gpu.name]


@KINDS
def test_a_restarted_controller_sends_the_difference_alone(
    kind: FabricKind, tmp_path: Path, stack: ExitStack
) -> None:
    bench = Bench(build_topology(spec(kind, 3, 2, 2)), tmp_path, stack)
    bench.ready("first").kill()
    foreign = "priority=7,ip,nw_dst=192.0.2.0/24"
    bench.ofctl("add-flow", "rail0", f"cookie=0x7,{foreign},actions=drop")
    bench.ofctl("del-flows", "rail0", "ip,nw_dst=10.0.0.1")
    gpu = bench.topology.gpus[0]
    lost = next(iter(desired_state(bench.topology).routes[gpu.name]))
    inside_gpu = bench.proxies[gpu.name]
    bench.inside("ip", "route", "del", str(lost.destination), process_id=inside_gpu)
    bench.inside("ip", "route", "add", "192.0.2.0/24", "dev", "hb0", process_id=inside_gpu)

    second = bench.ready("second")

    unchanged = dict.fromkeys(bench.topology.openflow_switches, (0, 0))
    assert second.sent() == {**unchanged, "rail0": (1, 0)}
    (routes,) = second.events("routes")
    assert (routes["added"], routes["removed"]) == (1, 0)
    assert bench.rules("rail0") == {**bench.wanted_rules("rail0"), "192.0.2.0/24": "drop"}
    assert bench.routes(gpu) == desired_state(bench.topology).routes[gpu.name]
    assert "192.0.2.0/24" in bench.inside("ip", "route", process_id=inside_gpu)


def test_a_restarted_controller_mends_rules_of_its_own_that_others_changed(
    tmp_path: Path, stack: ExitStack
) -> None:
    bench = Bench(build_topology(spec(FabricKind.RAIL_ONLY, 2, 2)), tmp_path, stack)
    bench.ready("first").kill()
    bench.ofctl("mod-flows", "rail0", "ip,nw_dst=10.0.0.1,actions=drop")
    bench.ofctl("mod-flows", "rail0", "ip,nw_dst=10.0.0.2,actions=dec_ttl,output:2")

    second = bench.ready("second")

    assert second.sent() == {"rail0": (2, 0), "rail1": (0, 0)}
    assert bench.rules("rail0") == bench.wanted_rules("rail0")


def test_an_error_of_a_handler_ends_the_controller_with_its_traceback(
    tmp_path: Path, stack: ExitStack
) -> None:
    """Ryu alone would log it and go on: here by a switch that is none of the fabric's."""
    bench = Bench(build_topology(spec(FabricKind.RAIL_ONLY, 2, 2)), tmp_path, stack)
    controller = bench.ready("first")
    bench.vsctl(
        "add-br",
        "stranger",
        "--",
        "set",
        "bridge",
        "stranger",
        "datapath_type=netdev",
        "protocols=OpenFlow13",
        "--",
        "set-controller",
        "stranger",
        CONTROLLER,
    )
    wait_until(lambda: controller.process.poll() is not None, "the controller ends")
    assert controller.process.returncode == SOFTWARE_ERROR
    (error,) = controller.events("error")
    assert "Traceback" in error["traceback"]
    assert error["traceback"].strip() in controller.log.read_text()


def test_a_port_that_is_taken_ends_the_controller(tmp_path: Path, stack: ExitStack) -> None:
    bench = Bench(build_topology(spec(FabricKind.RAIL_ONLY, 2, 2)), tmp_path, stack)
    bench.controller("first").wait_for("listening")
    second = bench.controller("second")
    wait_until(lambda: second.process.poll() is not None, "the second controller ends")
    assert second.process.returncode == SOFTWARE_ERROR
    assert not second.events("listening")
    assert "Address already in use" in second.events("error")[0]["traceback"]


def test_it_listens_on_the_loopback_alone(tmp_path: Path, stack: ExitStack) -> None:
    bench = Bench(build_topology(spec(FabricKind.RAIL_ONLY, 2, 2)), tmp_path, stack)
    bench.controller("first").wait_for("listening")
    sockets = bench.inside("ss", "--no-header", "--listening", "--tcp", "--numeric").splitlines()
    assert [line.split()[3] for line in sockets] == ["127.0.0.1:6653"]


def test_many_proxies_fit_whatever_the_soft_limit_of_open_files(
    tmp_path: Path, stack: ExitStack
) -> None:
    """Four descriptors each: six proxies and 32 here stand for 256 and the usual 1024."""
    bench = Bench(build_topology(spec(FabricKind.RAIL_ONLY, 3, 2)), tmp_path, stack)
    bench.ready("first", "--nofile=32:4096")
