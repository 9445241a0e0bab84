"""Options of several commands, with values and completion; what a fabric needs to come up.

Typer takes the names that begin with a word; if none does, the shell completes files.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from commands.plugins import require_built_in
from model.errors import InputError, Problem
from model.fabric.spec import Datapath as KnownDatapath
from model.sweep import VIRTUAL
from scenarios.library_files import library, scenario_file

if TYPE_CHECKING:
    from execution.live.feed import LiveFeed
    from scenarios.scenario import Scenario

# What stands in for a GPU by default.
CONTAINER = "container"
# For errors of commands that have the option.
NEEDS_NO_ROOT = "`--clock virtual` needs no root"
# Keys of a fabric that delay or lose packets, and the one of its queues.
IMPAIRING, QUEUE = ("hb_delay", "hb_loss", "nic_delay", "nic_loss", "links"), "switch_queue"
# Where the page of the live view is by default.
DEFAULT_AT = "127.0.0.1"


def scenario_names() -> list[str]:
    """Names of the library's scenarios."""
    return sorted(path.stem for path in library())


def configuration_names() -> list[str]:
    """Names of the training configurations that come with Railbed."""
    from scenarios.format.training import names

    return names()


def run_names() -> list[str]:
    """Names of the runs in the default store, and `latest`."""
    from results.store.runs import DEFAULT_STORE, stored_runs

    return sorted(["latest", *(run.name for run in stored_runs(DEFAULT_STORE))])


SCENARIO = typer.Argument(
    metavar="SCENARIO", help="a scenario file, or a name from `list`", autocompletion=scenario_names
)
ScenarioPath = Annotated[Path, SCENARIO]


def _own_program(context: typer.Context, command: list[str]) -> list[str]:
    """Raise `InputError` for a command that begins with an option: Railbed does not have it."""
    if command and command[0].startswith("-"):
        hint = f"`./{context.command_path} --help` lists the options"
        raise InputError(Problem(command[0], "is an unknown option", hint))
    return command


Command = Annotated[
    list[str],
    typer.Argument(metavar="COMMAND", callback=_own_program, help="with its arguments, after `--`"),
]
AsJson = Annotated[bool, typer.Option("--json", help="print the result as JSON")]
Record = Annotated[bool, typer.Option("--record", help="write the rows to docs/reference/figures")]
Overrides = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="set a scenario's key; repeatable")
]
Proxies = Annotated[
    Literal["container", "process"] | None,
    typer.Option(help="what stands in for a GPU; default: container"),
]
RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="an id, its beginning, a folder, or `latest`", autocompletion=run_names
    ),
]
Store = Annotated[Path, typer.Option(help="where runs are kept")]
# Of commands that use it with some other options alone; `None` stands for the default.
SomeStore = Annotated[
    Path | None, typer.Option("--store", help="where runs are kept; default: runs")
]
Datapath = Annotated[KnownDatapath | None, typer.Option(help="datapath of rail and spine switches")]
ClockName = Literal["real", "virtual"]
VIRTUAL_CLOCK = "virtual: counts a virtual machine's instructions; needs no root"
Clock = Annotated[ClockName, typer.Option(help=VIRTUAL_CLOCK)]
Figure = Annotated[
    Path | None, typer.Option(metavar="PATH", help="draw a figure: PATH.svg and PATH.png")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="virtual clock: compute known results again")]
Live = Annotated[bool, typer.Option("--live", help="serve a web page that shows the fabric")]
LiveAt = Annotated[
    str | None,
    typer.Option(
        "--live-at",
        metavar="ADDRESS[:PORT]",
        help=f"address of the page; default: {DEFAULT_AT}; other machines reach all but loopback",
    ),
]


def written_to(metavar: str, default: str) -> Any:
    """The option that says where files are written."""
    return typer.Option("--to", "-o", metavar=metavar, help=f"where to write; default: {default}")


def refuse_idle(what: str, hint: str = "", /, **options: object) -> None:
    """Raise `InputError` for those of some options that have a value: it would change nothing.

    Options have the names of their parameters; `what` says what they need.
    """
    problems = [
        Problem(f"--{key.replace('_', '-')}", what, hint)
        for key, value in options.items()
        # Zero is a value, as is an empty text.
        if value is not None and value is not False and value != []
    ]
    if problems:
        raise InputError(*problems)


def is_virtual(clock: str, proxies: str | None, *, fresh: bool) -> bool:
    """Whether the clock is virtual; raises `InputError` for options that only the other one has."""
    require_processes(clock, proxies)
    if clock != VIRTUAL:
        refuse_fresh(fresh)
    return clock == VIRTUAL


def require_processes(clock: str | None, proxies: str | None) -> None:
    """Raise `InputError` for containers under the virtual clock, whose machine has no Docker."""
    if clock == VIRTUAL and proxies not in (None, "process"):
        what = f"must be process with the virtual clock, got {proxies!r}"
        raise InputError(Problem("--proxies", what, "the virtual machine has no Docker Engine"))


def refuse_fresh(fresh: bool) -> None:
    """Raise `InputError` if `--fresh` is given with the real clock."""
    refuse_idle("needs --clock virtual: real-clock results are never cached", fresh=fresh)


def load_scenario(
    path: Path,
    overrides: Sequence[str],
    datapath: KnownDatapath | None = None,
    clock: ClockName = "real",
) -> "Scenario":
    """The scenario of a command, changed by its options.

    `auto` is worked out for this machine, or for the virtual clock's, whose costs are known. Raises
    `InputError` with all mistakes of the scenario.
    """
    # Importing what knows scenarios takes half a second: only commands that need it do it.
    from scenarios.load import load
    from scenarios.planning.machine_profile import machine_by

    changes = [*overrides, *([] if datapath is None else [f"fabric.datapath={datapath}"])]
    scenario = load(scenario_file(path), changes, machine_by(clock))
    if clock == VIRTUAL:
        require_built_in(scenario)
    return scenario


def proxy_kind(proxies: str | None) -> Any:
    """Parse the value of `--proxies`; raises `InputError` if it is unknown."""
    from testbed.nodes.gpu_proxies import ProxyKind

    if proxies not in (None, *ProxyKind):
        raise InputError(Problem("--proxies", f"must be {' or '.join(ProxyKind)}, got {proxies!r}"))
    return ProxyKind(proxies or CONTAINER)


def ready(proxies: str | None, without_root: str = "") -> Any:
    """Require a ready machine, clean up after dead runs, and return the kind of proxies.

    `without_root` is a hint for users without root, which the error ends with.
    """
    kind = proxy_kind(proxies)
    from commands.output import err
    from testbed.host.cleanup import HURRY_S, REMOVALS_S, clean
    from testbed.host.preflight import require_ready

    require_ready(kind, without_root)
    removed = clean(REMOVALS_S if kind == CONTAINER else HURRY_S)
    if removed:
        err.print(f"Removed leftovers of killed runs: {removed}.")
    if removed.left:
        err.print(f"Warning: {removed.left}", soft_wrap=True)
    return kind


@contextmanager
def page(live: bool, at: str | None) -> Iterator["LiveFeed | None"]:
    """Serve the page of the live view within the context if requested, and print its address."""
    if not live:
        refuse_idle("needs --live", live_at=at)
        yield None
        return
    from commands.output import err
    from execution.live.feed import live_feed, parse_address

    with live_feed(parse_address(DEFAULT_AT if at is None else at)) as feed:
        err.print(f"Live view: {feed.url}", soft_wrap=True)
        yield feed


def require_possible(scenario: "Scenario") -> None:
    """Refuse fabrics and faults that this kernel cannot make; only root can check."""
    require_fabrics(scenario)
    if os.geteuid() != 0 or not scenario.has_faults:
        return
    from testbed.faults.injector import missing_for

    modes = {fault.mode for faults in scenario.faults.values() for fault in faults}
    missing = {mode: missing_for(mode) for mode in sorted(modes)}
    if problems := [Problem(scenario.places[mode], what) for mode, what in missing.items() if what]:
        raise InputError(*problems)


def require_fabrics(scenario: "Scenario") -> None:
    """Refuse fabrics that this kernel cannot make, but no faults; only root can check."""
    if os.geteuid() == 0:
        _require_queues(scenario)
        require_datapaths(scenario)


def require_datapaths(scenario: "Scenario") -> None:
    """Raise `NotReady` if the datapath that a scenario names is not available; needs root.

    The default datapath is not checked here: the machine's checks include its requirements.
    """
    for datapath in {spec.datapath for spec in scenario.fabrics}:
        if datapath is not None:
            from testbed.nodes.datapath import require_datapath

            require_datapath(datapath)


def _require_queues(scenario: "Scenario") -> None:
    """Refuse delay, loss and marks of links where the kernel has no queues for them."""
    impaired = any(spec.is_impaired for spec in scenario.fabrics)
    queued = [spec for spec in scenario.fabrics if spec.nic.queue]
    if not queued and not impaired:
        return
    from testbed.fabric.queues import forwards_in_kernel, missing_red
    from testbed.fabric.shaping import missing_netem

    missing, places = [], scenario.places
    if impaired or any(forwards_in_kernel(spec) for spec in queued):
        keys = IMPAIRING if impaired else (QUEUE,)
        missing.append((next(places[key] for key in keys if key in places), missing_netem()))
    if any(spec.nic.queue.ecn for spec in queued):
        missing.append((places[QUEUE], missing_red()))
    if problems := [Problem(where, what) for where, what in missing if what]:
        raise InputError(*problems)
