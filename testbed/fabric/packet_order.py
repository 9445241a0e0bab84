"""Flows stay in order on links whose buckets let several segments leave at once.

These may leave from different cores. If one of the cores is paused, the others' segments overtake
its own; TCP takes these for lost, and sends them again. All such links of a switch therefore have
one core: those of HB domains, and others where segments are short. At 20 Mbit/s, a whole segment
takes 26 ms on a NIC link, longer than usual pauses.

An end of a veth pair gives each packet to the core that sent it. Receive packet steering
(networking/scaling.rst of the kernel) gives all packets of an interface to one core.
"""

import ctypes
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from linux.network.namespaces import checked, namespace_of
from model.errors import EmulationError
from model.fabric.shaping import segment_bytes, wire_bytes
from model.fabric.topology import LinkKind, Topology

LINKS = (LinkKind.HB, LinkKind.HB_TRUNK)
CLONE_NEWNS = 0x20000
MS_REMOUNT, MS_REC, MS_PRIVATE, MNT_DETACH = 32, 0x4000, 1 << 18, 2
SYSFS = Path("/sys")
WORD_BITS = 32
_libc = ctypes.CDLL(None, use_errno=True)


def _steer(cores: Mapping[int, Mapping[str, int]]) -> None:
    """Give all packets that arrive at an interface to one core; this thread must end afterwards.

    `cores` has the core of each interface, by a process in its network namespace; one that has
    ended is left out. A kernel without packet steering has no such setting.
    """
    checked(_libc.unshare(CLONE_NEWNS), "unshare")
    checked(_libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "mount")
    for process_id, of_interfaces in cores.items():
        with suppress(EmulationError), namespace_of(process_id), _own_sysfs():
            for name, core in of_interfaces.items():
                for setting in (SYSFS / "class/net" / name).glob("queues/rx-*/rps_cpus"):
                    setting.write_text(core_mask(core))


@contextmanager
def _own_sysfs() -> Iterator[None]:
    """Mount sysfs(5) with the interfaces of the present network namespace."""
    place = bytes(SYSFS)
    checked(_libc.mount(b"sysfs", place, b"sysfs", 0, None), "mount")
    try:
        # A container's own mount made the file system read-only, and remains so itself.
        checked(_libc.mount(None, place, None, MS_REMOUNT, None), "mount")
        yield
    finally:
        checked(_libc.umount2(place, MNT_DETACH), "umount2")


def core_mask(core: int) -> str:
    """Return a set of one core as the kernel writes it: words of 32 bits, the highest first."""
    word, bit = divmod(core, WORD_BITS)
    return ",".join([f"{1 << bit:08x}", *["00000000"] * word])


def keep_flows_in_order(topology: Topology, process_ids: Mapping[str, int], switches: int) -> None:
    """Steer packets at both ends of links to the core of the switch at the upper end.

    The cores that this process may use are given to the switches in turn. `process_ids` are those
    of the GPU proxies by GPU name; `switches` is a process in the switches' network namespace. Does
    nothing on a single core.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) == 1:
        return
    names = (*topology.hb_leaves, *topology.hb_switches, *topology.openflow_switches)
    core_of = {name: cores[place % len(cores)] for place, name in enumerate(names)}
    segment = wire_bytes(segment_bytes(topology.spec.grain_packets))
    chosen = defaultdict[int, dict[str, int]](dict)
    for link in topology.links:
        if link.kind in LINKS or link.shaper.burst_bytes >= segment:
            for port in (link.lower, link.upper):
                process_id = process_ids.get(port.node, switches)
                chosen[process_id][port.interface] = core_of[link.upper.node]
    # The thread has mounts of its own, and ends with them.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(_steer, chosen).result()
