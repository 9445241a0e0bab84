"""Every command that the documentation shows is executed, or has a reason why not."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.playground import SWEEP, execute, playground
from tests.shown.checks import THE_TEST_COMMAND, Check, How, checks, put_readers_files, with_values
from tests.shown.long_runs import by_subcommand, long_runs, table
from tests.shown.pages import OWN, ROOT, commands_of, shown
from tests.unit.stored_runs import stored_run

# The newest run of the playground.
RUN = "latest"


def of(how: How) -> list[Check]:
    return [check for check in checks() if check.how is how]


def test_every_command_that_is_shown_is_in_one_list() -> None:
    listed = [check.command for check in checks()]
    assert sorted(listed) == sorted(shown())


def test_named_tests_exist() -> None:
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    names = {check.what for check in of(How.TEST)} - {THE_TEST_COMMAND}
    assert [name for name in names if f"def {name}(" not in tests] == []


def test_the_code_of_long_runs_exists() -> None:
    places = {place for run in long_runs() for place in run.code}
    assert [place for place in places if not (ROOT / place).exists()] == []


def test_what_is_not_executed_has_a_reason() -> None:
    assert [check for check in of(How.NEVER) if len(check.what.split()) < 3] == []


def test_the_table_shows_the_records() -> None:
    text = OWN.read_text()
    assert "\n".join(table()) in text, "renew it: .venv/bin/python -m tests.shown --table"


def test_what_was_not_executed_is_listed_by_subcommand() -> None:
    commands = ("railbed bench a", "railbed bench b --c", "railbed failures", "tests/prove.sh")
    lines = ["- `railbed bench`: `a`, `b --c`", "- `railbed failures`", "- `tests/prove.sh`"]
    assert list(by_subcommand(commands)) == lines


def test_commands_are_read_from_blocks_and_sentences() -> None:
    page = "Call `sudo ./railbed demo --json`, not `run`.\n```\nsudo railbed  list # all\n```\n"
    assert commands_of(page) == ["railbed list", "railbed demo --json"]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with playground() as place:
        put_readers_files(place)
        stored_run(place / "runs")
        yield place


@pytest.mark.parametrize("check", of(How.HERE), ids=lambda check: check.command)
def test_a_command_without_a_fabric_works_as_shown(check: Check, folder: Path) -> None:
    words = with_values(check.command, RUN=RUN, NAME=SWEEP)
    end = execute(tuple(shlex.split(words)[1:]))
    assert end.exit_code == 0, end.output
