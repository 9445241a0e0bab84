"""Options and arguments of several commands, their values, and their completion in the shell.

Files are completed by the shell itself if no name begins with the word.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from commands.output import err
from model.errors import InputError, Problem
from model.fabric.spec import Datapath as KnownDatapath
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
    from results.store.runs import DEFAULT_STORE, stored_runs

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
    Literal["container", "process"] | None,
    typer.Option(help="what stands in for a GPU; container by default"),
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
Datapath = Annotated[KnownDatapath | None, typer.Option(help="datapath of rail and spine switches")]
CONTAINER = "container"


def load_for_this_machine(path: Path, overrides: Sequence[str]) -> "Scenario":
    """The scenario of a command, with its overrides; `auto` is worked out for this machine.

    Raises `InputError` with all mistakes of the scenario.
    """
    # Importing what knows scenarios takes half a second: only commands that need it do it.
    from scenarios.load import load
    from scenarios.planning.machine_profile import known_machine

    return load(scenario_file(path), overrides, known_machine())


def datapath_override(datapath: KnownDatapath | None) -> list[str]:
    """The override that `--datapath` stands for."""
    return [] if datapath is None else [f"fabric.datapath={datapath}"]


def proxy_kind(proxies: str) -> Any:
    """Parse the value of `--proxies`; raises `InputError` if it is unknown."""
    from testbed.nodes.gpu_proxies import ProxyKind

    if proxies not in list(ProxyKind):
        what = f"must be {' or '.join(ProxyKind)}, got {proxies!r}"
        raise InputError(Problem("--proxies", what))
    return ProxyKind(proxies)


def ready(proxies: str, without_root: str = "") -> Any:
    """Require a ready machine, clean up after dead runs, and return the kind of proxies.

    `without_root` is a hint for users without root, which the error ends with.
    """
    from testbed.host.cleanup import clean
    from testbed.host.preflight import require_ready

    kind = proxy_kind(proxies)
    require_ready(kind, without_root)
    removed = clean()
    if removed:
        err.print(f"Removed leftovers of killed runs: {removed}.")
    return kind
