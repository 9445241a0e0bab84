"""A thousand wrong inputs to the command line: each ends with a sentence and its exit code.

The same inputs each time; `python -m tests.fuzz` tries more.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz import exit_code, inputs
from tests.playground import MOST_BYTES, Input, end_of, playground


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with playground() as folder:
        yield folder


@settings(
    max_examples=400,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(tried=inputs())
def test_no_input_ends_otherwise_than_documented(folder: Path, tried: Input) -> None:
    end = end_of(folder, tried)
    assert end.is_right, end.output[-2000:]


def test_inputs_that_end_wrongly_or_take_much_memory_fail() -> None:
    assert exit_code(0, MOST_BYTES) == 0
    assert exit_code(1, MOST_BYTES) == exit_code(0, MOST_BYTES + 1) == 1
