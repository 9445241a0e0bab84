"""Facts about a run's machine: versions and settings that its figures depend on."""

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from linux.files.program_files import ROOT, program_version
from linux.machine.processor import model_name
from linux.processes.lifetime import first_line
from testbed.nodes.docker_engine import IMAGE_FILE

LIBRARIES = ("docker", "mininet", "pyroute2", "ryu", "scapy")
SETTINGS = (
    "/proc/sys/net/core/default_qdisc",
    "/proc/sys/net/core/wmem_default",
    "/proc/sys/net/ipv4/tcp_congestion_control",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
)


def environment(proxies: str, datapath: str) -> dict[str, Any]:
    """Read versions, sizes and settings of this machine."""
    return {
        "railbed": program_version(),
        "commit": first_line("git", "-C", str(ROOT), "rev-parse", "HEAD"),
        "kernel": platform.release(),
        "cpu": model_name(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "load_average": os.getloadavg(),
        "proxies": proxies,
        "datapath": datapath,
        "open_vswitch": first_line("ovs-vswitchd", "--version"),
        "docker": first_line("docker", "--version"),
        "image": _read(IMAGE_FILE),
        "libraries": {name: version(name) for name in LIBRARIES},
        "settings": {place: _read(Path(place)) for place in SETTINGS},
    }


def _read(place: Path) -> str:
    return place.read_text().strip() if place.exists() else "not there"
