"""A shaped link in a temporary namespace, to test what this kernel supports."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyroute2 import IPRoute

from linux.namespaces import private_namespace
from model.fabric.shaping import DEFAULT_DEPTH_S, Shaper
from testbed.fabric.shaping import shape

NAME = "trial"
SHAPER = Shaper(10_000_000, DEFAULT_DEPTH_S)


@contextmanager
def trial_link() -> Iterator[tuple[IPRoute, int]]:
    """Yield the netlink socket of the namespace and the index of the link's shaped end.

    Raises `NetlinkError` or `OSError` if the kernel cannot make it.
    """
    with private_namespace(), IPRoute() as netlink:
        netlink.link("add", ifname=NAME, kind="veth", peer=f"{NAME}-peer")
        index = netlink.link_lookup(ifname=NAME)[0]
        shape(netlink, index, SHAPER)
        yield netlink, index
