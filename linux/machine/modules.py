"""Modules of the running kernel: finding and loading them (modprobe(8))."""

import platform
import subprocess
from contextlib import suppress
from pathlib import Path

LOADED = Path("/sys/module")
MODULES = Path("/lib/modules")
LOAD_DEADLINE_S = 60


def kernel_has(module: str) -> bool:
    """Whether a module is loaded or built in, or is a file that can be loaded."""
    return (LOADED / module).exists() or module in _loadable()


def load_module(module: str) -> bool:
    """Load a module unless it is loaded; return whether it is loaded now."""
    if not (LOADED / module).exists():
        with suppress(OSError):  # no modprobe here
            _load(module)
    return (LOADED / module).exists()


def _load(module: str) -> None:
    """Try to load a module; one that hangs does so in the kernel, and is not waited for."""
    silent = subprocess.DEVNULL
    loading = subprocess.Popen(["modprobe", "--quiet", module], stdout=silent, stderr=silent)
    try:
        loading.wait(LOAD_DEADLINE_S)
    except subprocess.TimeoutExpired:
        loading.kill()


def _loadable() -> frozenset[str]:
    """The names of the modules that are files of this kernel (modules.dep(5))."""
    listed = MODULES / platform.release() / "modules.dep"
    if not listed.exists():
        return frozenset()
    paths = (line.partition(":")[0] for line in listed.read_text().splitlines())
    return frozenset(Path(path).name.partition(".")[0].replace("-", "_") for path in paths)
