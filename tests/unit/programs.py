"""Programs of tests that need a process of their own."""

import os
import subprocess
import sys

from linux.files.program_files import ROOT

# Becomes nobody, if this is root, who reads the clone even in a home that is closed to others.
READS_ALL = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *READS_ALL)
AS_USER = NOBODY if os.geteuid() == 0 else ()


def executed(program: str) -> subprocess.CompletedProcess[str]:
    """Execute a program in Python that may import Railbed; return how it ended."""
    return subprocess.run(
        [sys.executable, "-P", "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
