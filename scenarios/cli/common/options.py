"""Options and arguments of several commands, and their values."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from model.errors import InputError, Problem
from scenarios.cli.common.completion import run_names, scenario_names
from scenarios.file_formats.scenario.library import LIBRARY, OLD_NAMES, library

if TYPE_CHECKING:
    from scenarios.file_formats.scenario.scenario import Scenario

ScenarioPath = Annotated[
    Path,
    typer.Argument(help="a scenario file, or a name from `list`", autocompletion=scenario_names),
]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object")]
Overrides = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="change a key of the scenario")
]
Proxies = Annotated[
    str | None, typer.Option(help="what stands in for a GPU: container (the default) or process")
]
RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="an id, its beginning, a folder or latest", autocompletion=run_names
    ),
]
Store = Annotated[Path, typer.Option(help="where runs are kept")]
Capture = Annotated[
    list[str],
    typer.Option("--capture", metavar="LINK", help="keep a link's frames as pcap files"),
]
Datapath = Annotated[
    str | None, typer.Option(help="datapath of rail and spine switches: kernel or user-space")
]
CONTAINER = "container"
VERSION, COMPLETION = "--version", ("--install-completion", "--show-completion")


def find(path: Path) -> Path:
    """A scenario's file: as given, or by its name in the library."""
    named = LIBRARY / f"{OLD_NAMES.get(path.name, path.name)}.yaml"
    is_name = path.parent == Path() and not os.path.exists(path)
    return named if is_name and named in library() else path


def for_this_machine(path: Path, overrides: Sequence[str]) -> "Scenario":
    """The scenario of a command, with its overrides; `auto` is worked out for this machine.

    Raises `InputError` with all mistakes of the scenario.
    """
    # Importing what knows scenarios takes half a second: only commands that need it do it.
    from scenarios.loader import load
    from scenarios.planning.machine_profile import known_machine

    return load(find(path), overrides, known_machine())


def require_alone(arguments: Sequence[str]) -> None:
    """Raise `InputError` if a word follows an option that ends the command: it would be ignored."""
    if len(arguments) > 1 and arguments[0] in (VERSION, *COMPLETION):
        shells = "it is for the shell that calls it: bash, zsh, fish, powershell or pwsh"
        hint = shells if arguments[0] in COMPLETION else ""
        raise InputError(Problem(arguments[0], f"goes alone, without {arguments[1]!r}", hint))


def require_folder() -> None:
    """Raise `InputError` if the current folder was deleted: no path would lead anywhere."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise InputError(
            Problem("the current folder", "was deleted", "change to another")
        ) from None


def on(datapath: str | None) -> list[str]:
    """The override that `--datapath` stands for."""
    return [] if datapath is None else [f"fabric.datapath={datapath}"]
