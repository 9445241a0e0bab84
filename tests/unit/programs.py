"""Programs of tests that need a process of their own."""

import os
import subprocess
import sys

from linux.files.program_files import ROOT


def executed(program: str) -> subprocess.CompletedProcess[str]:
    """Execute a program in Python that may import Railbed; return how it ended."""
    return subprocess.run(
        [sys.executable, "-P", "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
