"""The version of the program, which runs and sweeps record."""

import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("controller", "linux", "model", "results", "scenarios", "testbed", "traffic_gen")


def program_version() -> str:
    """Return 12 hexadecimal digits of a digest of all modules, as they are on the disk now."""
    whole = hashlib.sha256()
    for file in sorted(file for room in ROOMS for file in (ROOT / room).rglob("*.py")):
        whole.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes() + b"\0")
    return whole.hexdigest()[:12]
