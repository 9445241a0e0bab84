"""Options and arguments of several commands, their values, and their completion in the shell.

Files are completed by the shell itself if no name begins with the word.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from model.errors import InputError, Problem
from model.fabric.spec import Datapath as KnownDatapath
from model.sweep import CLOCKS, VIRTUAL
from results.store.runs import DEFAULT_STORE, stored_runs
from scenarios.library_files import library, scenario_file

if TYPE_CHECKING:
    from scenarios.scenario import Scenario


def scenario_names(incomplete: str) -> list[str]:
    """Names of the library's scenarios."""
    return _beginning([path.stem for path in library()], incomplete)


def configuration_names(incomplete: str) -> list[str]:
    """Names of the training configurations that come with Railbed."""
    from scenarios.format.training import SHIPPED

    return _beginning([path.stem for path in SHIPPED.glob("*.yaml")], incomplete)


def run_names(incomplete: str) -> list[str]:
    """Names of the runs in the default store, and `latest`."""
    names = [run.name for run in stored_runs(DEFAULT_STORE)]
    return _beginning(["latest", *names], incomplete)


def _beginning(names: list[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


ScenarioPath = Annotated[
    Path,
    typer.Argument(
        metavar="SCENARIO",
        help="a scenario file, or a name from `list`",
        autocompletion=scenario_names,
    ),
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
Clock = Annotated[
    str, typer.Option(help="real, or virtual: counted instructions of a virtual machine, no root")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="virtual clock: compute known results again")]
# For errors of commands that have the option.
NEEDS_NO_ROOT = "`--clock virtual` needs no root"
CONTAINER = "container"
VERSION, COMPLETION = "--version", ("--install-completion", "--show-completion")


def load_for_this_machine(path: Path, overrides: Sequence[str]) -> "Scenario":
    """The scenario of a command, with its overrides; `auto` is worked out for this machine.

    Raises `InputError` with all mistakes of the scenario.
    """
    # Importing what knows scenarios takes half a second: only commands that need it do it.
    from scenarios.load import load
    from scenarios.planning.machine_profile import known_machine

    return load(scenario_file(path), overrides, known_machine())


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


def datapath_override(datapath: str | None) -> list[str]:
    """The override that `--datapath` stands for; raises `InputError` for another datapath."""
    if datapath is not None and datapath not in list(KnownDatapath):
        what = f"must be {' or '.join(KnownDatapath)}, got {datapath!r}"
        raise InputError(Problem("--datapath", what))
    return [] if datapath is None else [f"fabric.datapath={datapath}"]


def is_virtual(clock: str, proxies: str | None, *, fresh: bool = False) -> bool:
    """Whether `--clock` is the virtual one.

    Raises `InputError` if it is unknown, for `--fresh` without it, and for other `--proxies` than
    processes with it: the virtual machine has no Docker Engine.
    """
    if clock not in CLOCKS:
        raise InputError(Problem("--clock", f"must be {' or '.join(CLOCKS)}, got {clock!r}"))
    if clock == VIRTUAL and proxies not in (None, "process"):
        what = f"must be process with the virtual clock, got {proxies!r}"
        raise InputError(Problem("--proxies", what, "the virtual machine has no Docker Engine"))
    if clock != VIRTUAL:
        refuse_fresh(fresh)
    return clock == VIRTUAL


def refuse_fresh(fresh: bool) -> None:
    """Raise `InputError` if `--fresh` is given with the real clock."""
    if fresh:
        what = "needs --clock virtual: by the real clock, each result is measured again"
        raise InputError(Problem("--fresh", what))
