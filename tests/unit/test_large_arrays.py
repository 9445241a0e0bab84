"""Settings for large arrays: freed memory is kept, and NumPy sorts as is best on a processor."""

import os
import platform
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from linux.machine import processor
from linux.machine.processor import is_set_here, model_name, speed_up_large_arrays

DISABLED = "NPY_DISABLE_CPU_FEATURES"
ROOT = Path(__file__).parents[2]
ARRAYS = """
import ctypes, resource, sys
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: one fault a page, on any machine
from linux.machine.processor import speed_up_large_arrays
if sys.argv[1] == "kept":
    speed_up_large_arrays()
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


ZEN_4 = {
    "vendor_id": "AuthenticAMD",
    "cpu family": "25",
    "model name": "AMD EPYC",
    "flags": "fpu avx2 avx512f avx512dq avx512cd avx512bw avx512vl",
}


@pytest.mark.parametrize(
    ("other", "without"),
    [
        ({}, "X86_V4"),
        ({"flags": "fpu avx2"}, None),
        ({"cpu family": "26"}, None),
        ({"vendor_id": "GenuineIntel", "cpu family": "6"}, None),
    ],
)
def test_numpy_sorts_without_avx512_where_that_is_slow(
    other: dict[str, str],
    without: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    described(ZEN_4 | other, tmp_path, monkeypatch)
    monkeypatch.setenv(DISABLED, "of before")  # so that the end of the test restores it
    monkeypatch.delenv(DISABLED)
    speed_up_large_arrays()
    assert os.environ.get(DISABLED) == without


def test_what_the_user_says_of_numpy_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described(ZEN_4, tmp_path, monkeypatch)
    monkeypatch.setenv(DISABLED, "AVX512_SPR")
    speed_up_large_arrays()
    assert os.environ[DISABLED] == "AVX512_SPR"
    assert not is_set_here(DISABLED, "AVX512_SPR")
    assert is_set_here(DISABLED, "X86_V4")


def test_a_processor_without_a_name_has_that_of_its_architecture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described({"BogoMIPS": "100"}, tmp_path, monkeypatch)
    assert model_name() == platform.machine()
    described(ZEN_4, tmp_path, monkeypatch)
    assert model_name() == "AMD EPYC"


def described(facts: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first of two processors be described so."""
    lines = [f"{name}\t: {value}\n" for name, value in facts.items()]
    (folder / "cpuinfo").write_text("".join([*lines, "\n", "model name : another\n"]))
    monkeypatch.setattr(processor, "PLACE", folder / "cpuinfo")
