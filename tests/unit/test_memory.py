"""Freed memory is kept, so that the kernel need not clear pages for each large array."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ARRAYS = """
import ctypes, resource, sys
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: one fault a page, on any machine
from linux.memory import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
import numpy as np
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.ones(2**23).sum()
before = faults()
for _ in range(3):
    np.ones(2**23).sum()
print(faults() - before)
"""
# Beyond 32 MiB, malloc(3) never keeps memory by itself.
ARRAY_PAGES = 8 * 2**23 // resource.getpagesize()


@pytest.mark.parametrize("kept", [True, False])
def test_a_large_array_gets_the_pages_of_an_earlier_one(kept: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", ARRAYS, "kept" if kept else "as it is"],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (int(done.stdout) < ARRAY_PAGES) is kept
