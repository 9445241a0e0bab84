"""The options of the two clocks, and the fork between them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from commands.plugins import require_built_in
from model.errors import InputError, Problem
from model.sweep import VIRTUAL
from scenarios.library_files import scenario_file

if TYPE_CHECKING:
    from scenarios.scenario import Scenario

Result = TypeVar("Result")
ClockName = Literal["real", "virtual"]
Clock = Annotated[
    ClockName,
    typer.Option(help="virtual: counted instructions of a virtual machine, no root"),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="virtual clock: compute known results again")]
# For errors of commands that have the option.
NEEDS_NO_ROOT = "`--clock virtual` needs no root"


def by_clock(
    clock: str,
    proxies: str | None,
    *,
    fresh: bool,
    real: Callable[[], Result],
    virtual: Callable[[], Result],
) -> Result:
    """The result of `real` or of `virtual`.

    Raises `InputError` for `--fresh` with the real clock, and as `require_processes`.
    """
    require_processes(clock, proxies)
    if clock == VIRTUAL:
        return virtual()
    refuse_fresh(fresh)
    return real()


def require_processes(clock: str | None, proxies: str | None) -> None:
    """Raise `InputError` for containers under the virtual clock, whose machine has no Docker."""
    if clock == VIRTUAL and proxies not in (None, "process"):
        what = f"must be process with the virtual clock, got {proxies!r}"
        raise InputError(Problem("--proxies", what, "the virtual machine has no Docker Engine"))


def refuse_fresh(fresh: bool) -> None:
    """Raise `InputError` if `--fresh` is given with the real clock."""
    if fresh:
        what = "needs --clock virtual: real-clock results are never cached"
        raise InputError(Problem("--fresh", what))


def load_for_virtual_machine(path: Path, overrides: Sequence[str]) -> "Scenario":
    """A scenario for the virtual clock's machine, whose costs are known."""
    # Importing what knows scenarios takes long: not for `--help`.
    from scenarios.load import load
    from scenarios.planning.machine_profile import virtual_machine

    scenario = load(scenario_file(path), overrides, virtual_machine())
    require_built_in(scenario)
    return scenario
