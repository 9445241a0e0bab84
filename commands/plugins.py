"""The option `--plugin` of all commands: algorithms of a user's own."""

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from model.errors import InputError, Problem
from traffic_gen.workloads.algorithms.plugins import GROUP, enter_file, enter_installed

if TYPE_CHECKING:
    from scenarios.scenario import Scenario

OPTION, VARIABLE = "--plugin", "RAILBED_PLUGIN"
PAGE = "docs/guides/extending.md"

Plugins = Annotated[
    list[Path],
    typer.Option(OPTION, envvar=VARIABLE, help="a Python file with algorithms of your own"),
]


def enter_plugins(files: Sequence[Path]) -> None:
    """Register the algorithms of installed packages and of files.

    They hold for this process and its children. Raises `InputError` for a wrong one.
    """
    try:
        enter_installed()
    except ValueError as error:
        raise InputError(Problem(GROUP, str(error), f"see {PAGE}")) from error
    for file in files:
        try:
            enter_file(file)
        except ValueError as error:
            raise InputError(Problem(str(file), str(error), f"see {PAGE}")) from error
    if files:
        os.environ[VARIABLE] = os.pathsep.join(str(file.absolute()) for file in files)


def require_built_in(scenario: "Scenario") -> None:
    """Raise `InputError` for a case whose algorithm a virtual machine does not have."""
    from traffic_gen.workloads.algorithms.collectives import BUILT_IN

    for case in scenario.cases:
        for named in case.task.collectives:
            if named not in BUILT_IN:
                what = f"{named[1]!r} is a plugin's, which the virtual clock does not have"
                raise InputError(Problem(case.where, what, "leave out --clock virtual"))


def plugins_first(arguments: Sequence[str]) -> list[str]:
    """Put the option before the command, where Typer has the options of all commands.

    Words after `--` belong to a user's own command.
    """
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    moved, left = list[str](), list[str]()
    words: Iterator[str] = iter(arguments[:end])
    for word in words:
        if word == OPTION:
            moved += [word, *islice(words, 1)]
        else:
            (moved if word.startswith(f"{OPTION}=") else left).append(word)
    return [*moved, *left, *arguments[end:]]
