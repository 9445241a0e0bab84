"""Many rtnetlink requests in one call, and the error for one that the kernel refuses."""

import pytest
from pyroute2 import IPBatch, IPRoute

from linux.network.namespaces import private_namespace
from linux.network.netlink import REQUESTS_A_CALL, NetlinkSocket, Request, requests_in_batch
from model.errors import EmulationError

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]

LOOPBACK = 1
ADDRESSES = [f"10.0.{number // 250}.{number % 250 + 1}" for number in range(3 * REQUESTS_A_CALL)]


def adding(addresses: list[str], interface: int) -> list[Request]:
    """Requests that add addresses to an interface."""
    with IPBatch() as compiler:
        for address in addresses:
            compiler.addr("add", index=interface, address=address, prefixlen=32)
        return list(requests_in_batch(f"interface {interface}", bytes(compiler.batch)))


def addresses_now() -> list[str]:
    with IPRoute() as netlink:
        return [message.get_attr("IFA_ADDRESS") for message in netlink.get_addr(family=2)]


def test_more_requests_than_fit_into_a_call_are_all_done() -> None:
    with private_namespace():
        sock = NetlinkSocket()
        sock.send(adding(ADDRESSES, LOOPBACK))
        sock.close()
        assert addresses_now() == ADDRESSES


def test_the_first_request_that_is_refused_is_named() -> None:
    requests = adding(ADDRESSES[:2], LOOPBACK) + adding(ADDRESSES[2:3], interface=77)
    with private_namespace():
        sock = NetlinkSocket()
        with pytest.raises(
            EmulationError, match="interface 77: refused by the kernel: No such device"
        ):
            sock.send(requests)
        sock.send(adding(ADDRESSES[3:4], LOOPBACK))
        sock.close()
        assert addresses_now() == [*ADDRESSES[:2], ADDRESSES[3]]
