"""Host routes in a real network namespace."""

import os
import subprocess
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from controller.planner import Route
from controller.southbound.host_routes import HostRoutes
from linux.processes.lifetime import running
from model.fabric.addressing import GATEWAY, nic_address
from model.fabric.topology import Gpu
from tests.machine import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[int]:
    """Process id of a sleeping process in a network namespace without any links."""
    command = ["unshare", "--net", "sleep", "infinity"]
    with running(command, tmp_path / "proxy.log", {}) as process:
        own, namespace = os.readlink("/proc/self/ns/net"), f"/proc/{process.pid}/ns/net"
        wait_until(lambda: os.readlink(namespace) != own, "it has a namespace of its own")
        yield process.pid


def inside(process_id: int, *command: str) -> str:
    words = ["nsenter", f"--target={process_id}", "--net", *command]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def add_link(process_id: int) -> Route:
    """Give the proxy a link; return a route over it."""
    address = nic_address(Gpu(0, 0))
    for words in (
        "link add nic0 type veth peer name switch",
        f"address add {address}/32 dev nic0",
        "link set nic0 up",
        "link set switch up",
    ):
        inside(process_id, "ip", *words.split())
    return Route(IPv4Network("10.0.0.0/17"), GATEWAY, "nic0", address)


def test_links_may_come_after_the_controller(proxy: int) -> None:
    routes = HostRoutes(proxy, 1.25)
    assert routes.reconcile(frozenset({add_link(proxy)})) == (1, 0)
    found = inside(proxy, "ip", "route")
    assert f"10.0.0.0/17 via {GATEWAY} dev nic0" in found
    assert "rto_min lock 1.25s" in found
    routes.close()


def test_a_route_that_went_with_its_interface_is_removed_without_an_error(proxy: int) -> None:
    """The kernel removes the routes of an interface that its user takes down."""
    routes = HostRoutes(proxy, 1.25)
    routes.reconcile(frozenset({add_link(proxy)}))
    inside(proxy, "ip", "link", "set", "nic0", "down")
    assert inside(proxy, "ip", "route") == ""
    assert routes.reconcile(frozenset()) == (0, 1)
    routes.close()
