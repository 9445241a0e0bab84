"""The datapath of Open vSwitch: the kernel's if its module is available, else in user space."""

import os
import platform
import subprocess
from contextlib import suppress
from pathlib import Path

from model.errors import InputError, NotReady, Problem
from model.fabric.spec import Datapath

# Sets the default datapath where there is no option for it: failures, benchmarks, tests.
DATAPATH_VARIABLE = "RAILBED_DATAPATH"
TUN = Path("/dev/net/tun")
LOADED = Path("/sys/module")
MODULES = Path("/lib/modules")
LOAD_DEADLINE_S = 60


def default_datapath() -> Datapath:
    """The datapath in `RAILBED_DATAPATH`, else the kernel's if its module is available.

    Root loads the module; users without root can only look for its file.
    """
    asked = os.environ.get(DATAPATH_VARIABLE)
    if not asked:
        has_module = load_module if os.geteuid() == 0 else kernel_has
        return Datapath.KERNEL if has_module("openvswitch") else Datapath.USER_SPACE
    if asked not in list(Datapath):
        what = f"must be {' or '.join(Datapath)}, got {asked!r}"
        raise InputError(Problem(DATAPATH_VARIABLE, what))
    return Datapath(asked)


def datapath_in_words(datapath: Datapath) -> str:
    """Describe the datapath of the rail and spine switches in words."""
    if datapath is Datapath.KERNEL:
        return "Open vSwitch in the kernel"
    return "Open vSwitch in user space with segmentation offload"


def require_datapath(datapath: Datapath) -> None:
    """Load the kernel module that a datapath needs; raise `NotReady` if that fails."""
    if datapath is Datapath.KERNEL and not load_module("openvswitch"):
        raise NotReady(
            "Open vSwitch: its kernel datapath needs the module openvswitch, which cannot be "
            "loaded; boot a kernel that has it, or take user-space (`fabric.datapath`, or "
            "`--datapath` of a run)"
        )
    if datapath is Datapath.USER_SPACE:
        try:
            open_tun()
        except OSError as error:
            raise NotReady(
                f"Open vSwitch: its user-space datapath needs {TUN}, which cannot be opened "
                f"({error.strerror}); load its module with `sudo modprobe tun`, or boot a kernel "
                "that has it"
            ) from None


def open_tun() -> None:
    """Open the TUN device: user-space Open vSwitch makes a bridge's own port as a TAP device."""
    load_module("tun")
    os.close(os.open(TUN, os.O_RDWR))


def kernel_has(module: str) -> bool:
    """Whether a module is loaded or built in, or a file of this kernel has it (modules.dep(5))."""
    return _is_present(module) or module in _modules_of("modules.dep")


def _is_present(module: str) -> bool:
    """Whether a module is loaded or built in; of those built in, /sys/module has some alone."""
    return (LOADED / module).exists() or module in _modules_of("modules.builtin")


def _modules_of(listing: str) -> set[str]:
    """The names of the modules in one of depmod's listings for this kernel, if it has it."""
    listed = MODULES / platform.release() / listing
    lines = listed.read_text().splitlines() if listed.exists() else []
    files = (Path(line.partition(":")[0]).name.partition(".")[0] for line in lines)
    return {file.replace("-", "_") for file in files}


def load_module(module: str) -> bool:
    """Load a module unless the kernel has it; return whether it is loaded or built in.

    A load that hangs does so in the kernel, and is not waited for.
    """
    if not _is_present(module):
        silent = subprocess.DEVNULL
        with suppress(OSError):  # no modprobe here
            load = subprocess.Popen(["modprobe", "--quiet", module], stdout=silent, stderr=silent)
            try:
                load.wait(LOAD_DEADLINE_S)
            except subprocess.TimeoutExpired:
                load.kill()
    return _is_present(module)
