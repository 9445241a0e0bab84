"""Notifications of interfaces and shapers, also when they overflow the socket's buffer."""

import socket

import pytest
from pyroute2 import IPRoute

from controller.detection.kernel_notifications import LinkCarriers, LinkRates
from linux.network.namespaces import private_namespace
from linux.network.netlink import DRAINED
from model.fabric.shaping import DEFAULT_DEPTH_S, Shaper
from testbed.fabric.shaping import reshape, shape

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

RATE_BPS = 20_000_000


def test_rates_are_known_although_the_kernel_told_too_much_at_once() -> None:
    with private_namespace(), IPRoute() as netlink:
        netlink.link("add", ifname="one", kind="veth", peer="other")
        index = netlink.link_lookup(ifname="one")[0]
        rates = LinkRates()
        assert rates.present() == []
        rates.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        shape(netlink, index, Shaper(RATE_BPS, DEFAULT_DEPTH_S))
        for megabits in range(1, 100):
            reshape(netlink, index, Shaper(megabits * 1_000_000, DEFAULT_DEPTH_S))
        assert rates.changed() == rates.present() == [("one", 99_000_000)]
        reshape(netlink, index, Shaper(RATE_BPS, DEFAULT_DEPTH_S))
        assert rates.changed() == [("one", RATE_BPS)]
        rates.close()


def test_carriers_are_known_although_the_kernel_told_too_much_at_once() -> None:
    with private_namespace(), IPRoute() as netlink:
        netlink.link("add", ifname="one", kind="veth", peer="other")
        index = netlink.link_lookup(ifname="one")[0]
        carriers = LinkCarriers()
        everything = {(name, False, False) for name in ("lo", "one", "other")}
        assert set(carriers.present()) == everything
        carriers.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        for _ in range(20):
            netlink.link("set", index=index, state="up")
            netlink.link("set", index=index, state="down")
        netlink.link("del", index=index)
        assert set(carriers.changed()) == everything
        assert carriers.present() == [("lo", False, False)]
        netlink.link("set", index=1, state="up")
        assert carriers.changed() == [("lo", False, False)]
        for alias in (DRAINED, "", "of somebody else"):
            netlink.link("set", index=1, ifalias=alias)
            assert carriers.changed() == [("lo", False, alias == DRAINED)]
        carriers.close()
