"""Checks what a run needs from this machine; each failed check names its remedy.

And whether Railbed has been shown to work on such a host: `proved_hosts.csv` has a line for each of
the README's commands that ended well on a kind of host; `tests/hosts` executes them, and adds the
lines.
"""

import os
import platform
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pyroute2.netlink.exceptions import NetlinkError

from linux.files.program_files import rows_of
from linux.network.namespaces import private_namespace
from linux.network.route_socket import RouteSocket
from linux.network.socket_options import ETH_P_ALL
from model.errors import NotReady, RailbedError
from model.fabric.spec import Datapath
from testbed.fabric.links import BRIDGE_SETTINGS
from testbed.fabric.shaping import ROOT, TRIAL_NAME, TRIAL_SHAPER, check_shaped, trial_link
from testbed.nodes.datapath import default_datapath, open_tun
from testbed.nodes.docker_engine import docker_client, packages_date
from testbed.nodes.gpu_proxies import ProxyKind

# Mininet ends the program where `ifconfig` is missing, although no run executes it.
TOOLS = (
    *("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool"),
    *("mnexec", "ifconfig", "mount", "setpriv", "unshare"),
)
INSTALL = "install it with `sudo ./railbed doctor`"
PROVED = Path(__file__).with_name("proved_hosts.csv")
UNKNOWN = "unknown"
UNPROVED = "not shown to work on such a host"
TRY = (
    "try `sudo ./railbed test`, or use Railbed's container or its virtual machine "
    "(docs/guides/installing.md)"
)
TUN_DEVICE = "kernel's TUN/TAP device"
# Set in Railbed's container (Dockerfile).
CONTAINER_VARIABLE = "RAILBED_CONTAINER"
# Numbers of capabilities(7), as in linux/capability.h.
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}
LOOPBACK = 1  # its index in every network namespace


@dataclass(frozen=True)
class Check:
    """One requirement of a run: whether it is met, its state, and the remedy if not."""

    name: str
    ready: bool
    state: str
    remedy: str = ""

    def __str__(self) -> str:
        remedy = f"; {self.remedy}" if self.remedy and not self.ready else ""
        return f"{self.name}: {self.state}{remedy}"


def checks(kind: ProxyKind, without_root: str = "") -> list[Check]:
    """All checks for a run with proxies of this kind, in the default datapath.

    `without_root` is what a user without root can do instead.
    """
    root = _root(without_root)
    made = [root, *(_tool(name) for name in TOOLS)]
    privileges = _privileges()
    if root.ready and not privileges.ready:
        return [*made, privileges]
    if root.ready:
        made += [_feature(*feature) for feature in FEATURES]
        made += [_attempt("traffic shaping", _try_shaping, "see the kernel features above")]
        if BRIDGE_SETTINGS.exists():
            made += [Check("br_netfilter", True, "loaded; switched off in Railbed's namespaces")]
        if default_datapath() is Datapath.USER_SPACE:
            made += [_attempt(TUN_DEVICE, open_tun, _load("tun"))]
    if kind is ProxyKind.CONTAINER and root.ready:
        made += [_docker()]
    return made


def unneeded_checks() -> list[Check]:
    """Return the checks that fail no run.

    That is the kind of host, and, for root, what only another datapath than the default needs.
    """
    host = this_host()
    known = Check("host", bool(host.shown()), f"{host}; {host.shown() or UNPROVED}", TRY)
    if os.geteuid() != 0 or default_datapath() is Datapath.USER_SPACE:
        return [known]
    name = f"{TUN_DEVICE} (needed for --datapath {Datapath.USER_SPACE})"
    return [known, _attempt(name, open_tun, _load("tun"))]


def require_ready(kind: ProxyKind, without_root: str = "") -> None:
    """Raise `NotReady` with all failed checks, and with what a user without root can do instead."""
    missing = [check for check in checks(kind, without_root) if not check.ready]
    if missing:
        raise NotReady("\n".join(str(check) for check in missing))


def _root(without_root: str) -> Check:
    is_root = os.geteuid() == 0
    state = "yes" if is_root else f"no, user id {os.geteuid()}"
    remedy = "run the command again with `sudo`"
    return Check("root", is_root, state, f"{remedy}; {without_root}" if without_root else remedy)


def in_container() -> bool:
    """Whether this is Railbed's container."""
    return CONTAINER_VARIABLE in os.environ


def _privileges() -> Check:
    """Check the capabilities of root, which a container has not by itself."""
    status = Path("/proc/self/status").read_text()
    (effective,) = re.findall(r"^CapEff:\s+(\w+)$", status, re.MULTILINE)
    missing = [name for name, bit in CAPABILITIES.items() if not int(effective, 16) >> bit & 1]
    state = f"root without {' and '.join(missing)}" if missing else "all"
    remedy = "start the container with `docker run --privileged`"
    return Check("privileges", not missing, state, remedy)


def _docker() -> Check:
    name = "Docker Engine and the proxies' image"
    if in_container():
        state = "not available inside a container"
        return Check(name, False, state, "use `--proxies process`")
    return _attempt(name, _try_docker, "")  # its errors name their remedies


def _tool(name: str) -> Check:
    place = shutil.which(name)
    return Check(f"tool {name}", place is not None, place or "not found", INSTALL)


def _attempt(name: str, attempt: Callable[[], str | None], remedy: str) -> Check:
    """Check a feature by trying it: `attempt` raises an error, or may return the state."""
    try:
        said = attempt()
    except NetlinkError as error:
        return Check(name, False, f"refused by the kernel: {error.args[1]}", remedy)
    except (OSError, RailbedError) as error:
        return Check(name, False, str(error), remedy)
    return Check(name, True, said or "works", remedy)


def _feature(name: str, module: str, attempt: Callable[[RouteSocket], object]) -> Check:
    """Check a kernel feature in a temporary namespace; the attempt loads its module if it can."""

    def alone() -> None:
        with private_namespace(), RouteSocket() as netlink:
            attempt(netlink)

    return _attempt(f"kernel's {name}", alone, _load(module))


def _load(module: str) -> str:
    where = " on the container's host" if in_container() else ""
    return f"load it with `sudo modprobe {module}`{where}, or boot a kernel that has it"


def _add_buckets(netlink: RouteSocket) -> None:
    netlink.tc("add", "htb", LOOPBACK, ROOT)


def _add_classifier(netlink: RouteSocket) -> None:
    _add_buckets(netlink)
    match = {"protocol": ETH_P_ALL, "target": ROOT | 1, "keys": ["0x0000/0xff80+2"]}
    netlink.tc("add-filter", "u32", LOOPBACK, parent=ROOT, prio=1, **match)


FEATURES: tuple[tuple[str, str, Callable[[RouteSocket], object]], ...] = (
    ("veth pairs", "veth", lambda to: to.link("add", ifname="a", kind="veth", peer="b")),
    ("bridges", "bridge", lambda to: to.link("add", ifname="a", kind="bridge")),
    ("token buckets (HTB)", "sch_htb", _add_buckets),
    ("u32 classifier", "cls_u32", _add_classifier),
)


def _try_shaping() -> None:
    """Shape a trial link in a temporary namespace, and read the shaper back."""
    with trial_link() as (netlink, index):
        check_shaped(netlink, index, TRIAL_NAME, TRIAL_SHAPER)


def _try_docker() -> str:
    with closing(docker_client()) as client:
        return f"works; Debian packages of the image: {packages_date(client)}"


@dataclass(frozen=True)
class Proof:
    """A command that ended well on a kind of host.

    `kernel` is Linux's version, such as 6.12, `date` that of the end, `duration_s` in seconds.
    """

    distribution: str
    version: str
    architecture: str
    python: str
    kernel: str
    date: str
    command: str
    result: str
    duration_s: str


def known_proofs(proved: Path = PROVED) -> list[Proof]:
    """Return all lines of the file, in their order."""
    return [Proof(**row) for row in rows_of(proved)]


@dataclass(frozen=True)
class Host:
    """A kind of host: distribution and its version, architecture, and Python without patch level.

    `name` is the distribution in its own words, `kernel` Linux's release; they make no other kind.
    """

    distribution: str
    version: str
    architecture: str
    python: str
    name: str = UNKNOWN
    kernel: str = UNKNOWN

    def __str__(self) -> str:
        return f"{self.name}, Linux {self.kernel}, Python {self.python}, {self.architecture}"

    def shown(self, proved: Path = PROVED) -> str:
        """Say when Railbed was shown to work on this kind of host; empty if it never was."""
        kind = (self.distribution, self.version, self.architecture, self.python)
        proofs = [
            proof
            for proof in known_proofs(proved)
            if (proof.distribution, proof.version, proof.architecture, proof.python) == kind
        ]
        if not proofs:
            return ""
        kernels = sorted({proof.kernel for proof in proofs})
        last = max(proof.date for proof in proofs)
        return f"shown to work on {last}, with Linux {' and '.join(kernels)}"


def this_host() -> Host:
    """Return this machine's kind, from os-release(5)."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    return Host(
        distribution=release.get("ID", UNKNOWN),
        version=release.get("VERSION_ID", UNKNOWN),
        architecture=platform.machine(),
        python=".".join(platform.python_version_tuple()[:2]),
        name=release.get("PRETTY_NAME", UNKNOWN),
        kernel=platform.release(),
    )
