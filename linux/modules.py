"""Modules of the running kernel: finding and loading them (modprobe(8))."""

import platform
import subprocess
from contextlib import suppress
from pathlib import Path

LOADED = Path("/sys/module")
MODULES = Path("/lib/modules")


def kernel_has(module: str) -> bool:
    """Whether a module is loaded or built in, or is a file that can be loaded."""
    return (LOADED / module).exists() or module in _loadable()


def load_module(module: str) -> bool:
    """Load a module unless it is loaded; return whether it is loaded now."""
    if not (LOADED / module).exists():
        with suppress(OSError):  # no modprobe here
            subprocess.run(["modprobe", "--quiet", module], check=False, capture_output=True)
    return (LOADED / module).exists()


def _loadable() -> frozenset[str]:
    """The names of the modules that are files of this kernel (modules.dep(5))."""
    listed = MODULES / platform.release() / "modules.dep"
    if not listed.exists():
        return frozenset()
    paths = (line.partition(":")[0] for line in listed.read_text().splitlines())
    return frozenset(Path(path).name.partition(".")[0].replace("-", "_") for path in paths)
