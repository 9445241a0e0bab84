"""The command line. Standard output is for results, standard error for everything else.

Exit codes: 0 ok, 1 an expectation failed, 2 bad input, 3 the machine is not ready, 4 the
emulation failed, 130 interrupted.
"""

import json
import os
import shlex
import signal
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from model.errors import EmulationError, InputError, NotReady, Problem, RailbedError
from model.prediction.machine import Machine
from results.documents.fault_impact import lost_experiment
from results.documents.path_check import verify_object
from results.documents.sweep import sweep_object
from results.store.runs import DEFAULT_STORE, find_run, read_result, read_state, stored_runs
from results.store.sweeps import SweepFolder
from results.tables.fault_impact import print_failures
from results.tables.path_check import print_verify
from results.tables.run import print_run
from results.tables.run_diff import print_comparison
from results.tables.sweep import print_sweep
from scenarios.cli.check import describe
from scenarios.cli.clock import Clock, Fresh, is_virtual
from scenarios.cli.compare import compared
from scenarios.cli.cost import cost
from scenarios.cli.output import AsJson, err, out, print_result
from scenarios.execution.progress import Bar, Lines
from scenarios.library import LIBRARY, OLD_NAMES, library
from scenarios.loader import load
from scenarios.planning.kernel_support import require_possible
from scenarios.planning.machine_profile import keep, known_machine, this_machine, virtual_machine
from scenarios.planning.plan import plan as planned
from scenarios.planning.plan_table import print_chosen, print_machine, print_plan
from scenarios.sweep.progress import sweep_listener
from scenarios.sweep.request import SweepRequest

EXIT_FAILED, EXIT_EMULATION_FAILED, EXIT_INTERRUPTED = 1, 4, 130

ROOT = Path(__file__).resolve().parents[2]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="An emulation testbed for rail-only and rail-optimized GPU-cluster fabrics.",
)

ScenarioPath = Annotated[Path, typer.Argument(help="a scenario file, or a name from `list`")]
Overrides = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="change a key of the scenario")
]
Proxies = Annotated[str, typer.Option(help="what stands in for a GPU: container or process")]
Store = Annotated[Path, typer.Option(help="where runs are kept")]
Datapath = Annotated[
    str | None, typer.Option(help="of rail and spine switches: kernel or user-space")
]


@app.command()
def demo(
    as_json: AsJson = False, proxies: Proxies = "container", datapath: Datapath = None
) -> None:
    """Run the quickstart: both fabrics, an AllReduce and an all-to-all, measured and modeled."""
    _run(LIBRARY / "quickstart.yaml", _on(datapath), as_json, proxies, DEFAULT_STORE)


@app.command()
def run(
    scenario: ScenarioPath,
    as_json: AsJson = False,
    proxies: Annotated[str | None, typer.Option(help="container (the default) or process")] = None,
    overrides: Overrides = [],  # noqa: B006  (typer wants a plain default)
    store: Store = DEFAULT_STORE,
    datapath: Datapath = None,
    clock: Clock = "real",
    fresh: Fresh = False,
) -> None:
    """Run one scenario."""
    changes = [*overrides, *_on(datapath)]
    if is_virtual(clock, proxies):
        _run_virtually(scenario, changes, as_json, store, fresh=fresh)
    else:
        _run(scenario, changes, as_json, proxies or "container", store)


def _on(datapath: str | None) -> list[str]:
    """The override that `--datapath` stands for."""
    return [] if datapath is None else [f"fabric.datapath={datapath}"]


def _run(path: Path, overrides: list[str], as_json: bool, proxies: str, store: Path) -> None:
    scenario = load(_find(path), overrides, known_machine())
    kind = _ready(proxies)
    require_possible(scenario)
    # Importing the testbed's libraries takes a second: only commands that need them do it.
    from scenarios.execution.run import run as run_scenario

    if err.is_terminal:
        with Bar(err, scenario.executions) as bar:
            result = run_scenario(scenario, kind, store, bar)
    else:
        result = run_scenario(scenario, kind, store, Lines(err))
    _show(result, as_json)
    raise typer.Exit(EXIT_FAILED if result["verdict"] == "fail" else 0)


@app.command()
def sweep(
    scenario: Annotated[Path | None, typer.Argument(help="a scenario file, or a name")] = None,
    over: Annotated[
        list[str], typer.Option(metavar="KEY=V1,V2,...", help="the values of a key; repeatable")
    ] = [],  # noqa: B006
    overrides: Overrides = [],  # noqa: B006
    proxies: Annotated[str | None, typer.Option(help="container (the default) or process")] = None,
    name: Annotated[str | None, typer.Option(help="what to call it")] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="NAME", help="go on with this sweep, or the latest")
    ] = None,
    as_json: AsJson = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """Run a scenario at every combination of values, one after the other; can be resumed."""
    found = None if scenario is None else _find(scenario)
    kind = None if proxies is None else _kind(proxies).value
    asked = SweepRequest(found, tuple(over), tuple(overrides), kind, name, resume)
    folder = asked.folder(store, require_possible)
    with folder.locked():
        if folder.unfinished:
            _sweep(folder, store)
        else:
            err.print("All points have results already; another --name measures them again.")
        result = sweep_object(folder)
    print_result(result, as_json, print_sweep)
    raise typer.Exit(EXIT_FAILED if result["verdict"] == "fail" else 0)


def _sweep(folder: SweepFolder, store: Path) -> None:
    """Run the points that have no result yet; if interrupted, print how to resume the sweep."""
    _ready(folder.sweep.proxies)
    from scenarios.sweep.executor import LocalExecutor
    from scenarios.sweep.runner import Sweeping

    try:
        with sweep_listener(err, folder) as listener:
            Sweeping(folder, LocalExecutor(), listener).run()
    except KeyboardInterrupt:
        where = [] if store == DEFAULT_STORE else ["--store", str(store)]
        command = shlex.join(["railbed", "sweep", "--resume", folder.name, *where])
        err.print(f"The sweep goes on with `{command}`.", highlight=False, soft_wrap=True)
        raise


@app.command()
def failures(
    as_json: AsJson = False, proxies: Proxies = "container", store: Store = DEFAULT_STORE
) -> None:
    """Run all failure experiments of the library, on both fabrics, and print one table."""
    from scenarios.execution.run import run as run_scenario

    experiments = [scenario for path in library() if (scenario := load(path)).has_faults]
    for experiment in experiments:
        require_possible(experiment)
    kind, lines = _ready(proxies), Lines(err)
    rows: list[dict[str, Any]] = []
    for experiment in experiments:
        try:
            rows += run_scenario(experiment, kind, store, lines)["failures"]
        except EmulationError as error:
            rows.append(lost_experiment(experiment.name, str(error)))
    print_result(rows, as_json, print_failures)
    raise typer.Exit(EXIT_FAILED if any(row["verdict"] == "fail" for row in rows) else 0)


def _run_virtually(
    path: Path, overrides: list[str], as_json: bool, store: Path, *, fresh: bool
) -> None:
    from scenarios.execution.virtual_clock import run_virtually

    result = run_virtually(load(_find(path), overrides, virtual_machine()), store, fresh=fresh)
    _show(result, as_json)
    raise typer.Exit(EXIT_FAILED if result["verdict"] == "fail" else 0)


def _kind(proxies: str) -> Any:
    """Parse the value of `--proxies`; raises `InputError` if it is unknown."""
    from testbed.nodes.gpu_proxies import ProxyKind

    if proxies not in list(ProxyKind):
        what = f"must be {' or '.join(ProxyKind)}, got {proxies!r}"
        raise InputError(Problem("--proxies", what))
    return ProxyKind(proxies)


def _ready(proxies: str) -> Any:
    """Require a ready machine, clean up after dead runs, and return the kind of proxies."""
    from testbed.host.cleanup import clean
    from testbed.host.preflight import require_ready

    kind = _kind(proxies)
    require_ready(kind)
    removed = clean()
    if removed:
        err.print(f"Removed what killed runs had left: {removed}.", highlight=False)
    return kind


def _show(result: dict[str, Any], as_json: bool) -> None:
    print_result(result, as_json, print_run)
    if not as_json:
        kept = f"\nEverything that was measured: {result['folder']}"
        out.print(kept, soft_wrap=True, highlight=False)


def _find(path: Path) -> Path:
    """A scenario's file: as given, or by its name in the library."""
    named = LIBRARY / f"{OLD_NAMES.get(path.name, path.name)}.yaml"
    return named if not path.exists() and path.parent == Path() and named.exists() else path


@app.command()
def check(scenario: ScenarioPath, overrides: Overrides = []) -> None:  # noqa: B006
    """Check a scenario without running it: all problems at once. Needs no root."""
    checked = load(_find(scenario), overrides, known_machine())
    require_possible(checked)
    out.print(f"{scenario}: ok", highlight=False, soft_wrap=True)
    describe(checked, out)


@app.command()
def plan(scenario: ScenarioPath, overrides: Overrides = []) -> None:  # noqa: B006
    """Say what a scenario will ask of this machine, and whether it fits. Needs no root."""
    machine = known_machine()
    loaded = load(_find(scenario), overrides, machine)
    print_plan(planned(loaded, machine), machine, out)
    print_chosen(loaded, out)


@app.command()
def verify(
    scenario: ScenarioPath,
    as_json: AsJson = False,
    proxies: Proxies = "container",
    overrides: Overrides = [],  # noqa: B006
    datapath: Datapath = None,
) -> None:
    """Check that packets take the intended paths on a scenario's fabrics, and stay on rails."""
    loaded = load(_find(scenario), [*overrides, *_on(datapath)], known_machine())
    kind = _ready(proxies)
    from scenarios.execution.path_check import verify as verified

    result = verify_object(loaded.name, list(verified(loaded, kind, Lines(err))))
    print_result(result, as_json, print_verify)
    raise typer.Exit(EXIT_FAILED if result["verdict"] == "fail" else 0)


@app.command(name="list")
def list_all(store: Store = DEFAULT_STORE) -> None:
    """List the scenarios that come with Railbed, and the stored runs."""
    out.print("[bold]Scenarios[/bold] (railbed run NAME)")
    for path in library():
        out.print(f"  {path.stem:22} {load(path).description}", highlight=False, soft_wrap=True)
    runs = stored_runs(store)
    out.print(f"\n[bold]Runs[/bold] in {store.resolve()} (railbed show RUN)", soft_wrap=True)
    for place in runs:
        out.print(f"  {place.name}  {read_state(place)['state']}", highlight=False)
    if not runs:
        out.print("  none yet")


@app.command()
def show(
    run_name: Annotated[str, typer.Argument(metavar="RUN", help="an id, its beginning, or latest")],
    as_json: AsJson = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """Show a stored run."""
    _show(read_result(find_run(store, run_name)), as_json)


@app.command()
def compare(
    first: Annotated[str, typer.Argument(metavar="RUN", help="an id, its beginning, or a folder")],
    second: Annotated[str, typer.Argument(metavar="RUN", help="the run to hold against it")],
    as_json: AsJson = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """Compare two stored runs, case by case, by the spread of their repeats."""
    result = compared(store, first, second)
    print_result(result, as_json, print_comparison)


app.command()(cost)


@app.command()
def up(
    scenario: ScenarioPath,
    proxies: Proxies = "container",
    overrides: Overrides = [],  # noqa: B006
    datapath: Datapath = None,
) -> None:
    """Bring a scenario's first fabric up and open Mininet's command line."""
    loaded = load(_find(scenario), [*overrides, *_on(datapath)], known_machine())
    kind = _ready(proxies)
    from scenarios.execution.emulation import experiment
    from testbed.fabric.mininet_network import open_command_line

    run_id = f"up-{loaded.name}-{os.getpid()}"
    with experiment(loaded.fabrics[0], kind, run_id) as fabric:
        fabric.bed.impair()
        open_command_line(fabric.bed.network)


@app.command()
def doctor(
    proxies: Proxies = "container",
    measure: Annotated[bool, typer.Option("--measure", help="measure the machine again")] = False,
) -> None:
    """Say what this machine can do, and what is missing; measure it if that was never done."""
    from testbed.host.preflight import checks, datapath_in_words
    from testbed.nodes.gpu_proxies import ProxyKind
    from testbed.nodes.openvswitch import default_datapath

    found = checks(ProxyKind(proxies))
    for item in found:
        sign = "[green]ok     [/green]" if item.ready else "[red]missing[/red]"
        mend = "" if item.ready else f"; {item.mend}"
        out.print(f"{sign} {item.name}: {item.found}{mend}", highlight=False, soft_wrap=True)
    switches = datapath_in_words(default_datapath())
    out.print(f"        rail and spine switches: {switches}", highlight=False)
    missing = [item for item in found if not item.ready]
    if missing:
        raise NotReady(f"{len(missing)} of {len(found)} checks failed; each says how to mend it")
    print_machine(_measured(again=measure), out)


@app.command(context_settings={"ignore_unknown_options": True})
def vm(
    command: Annotated[list[str], typer.Argument(help="and its arguments, behind `--`")],
    memory: Annotated[int, typer.Option(metavar="MIB", help="of the virtual machine")] = 4096,
    docker: Annotated[bool, typer.Option(help="with a Docker Engine inside")] = False,
) -> None:
    """Execute a command in a copy of Railbed's folder, on a virtual machine of Debian's kernel."""
    from testbed.virtual_machine.tree import execute_in_copy

    raise typer.Exit(execute_in_copy(ROOT, command, Path.cwd(), memory_mib=memory, docker=docker))


def _measured(*, again: bool) -> Machine:
    """Return this machine's measured costs; measure them now if `again`, or if none are stored."""
    machine = None if again else known_machine()
    if machine is None:
        from scenarios.execution.machine_costs import measure as measure_machine

        err.print("Measuring this machine: about 20 s, in which it should do nothing else.")
        machine = measure_machine(this_machine())
        err.print(f"Kept in {keep(machine)}.", highlight=False, soft_wrap=True)
    return machine


@app.command()
def bench(
    name: Annotated[
        str,
        typer.Argument(
            help="fidelity, startup, growth, capacity, gate, noise, buckets, calibration, "
            "datapaths, shapers, mininet, agents, routing or blackout"
        ),
    ],
    as_json: AsJson = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """Measure the figures that the documentation states. `routing` needs no root."""
    from scenarios.benchmarks import BENCHMARKS, WITH_CONTAINERS, WITHOUT_FABRIC
    from scenarios.benchmarks.common.rows import FAILED, Row

    if name not in BENCHMARKS:
        what = f"must be one of {', '.join(BENCHMARKS)}, got {name!r}"
        raise InputError(Problem("bench NAME", what))
    if name not in WITHOUT_FABRIC:
        _ready("container" if name in WITH_CONTAINERS else "process")
    rows: list[Row] = []
    try:
        for row in BENCHMARKS[name](store):
            rows.append(row)
            if not as_json:
                _print_row(row)
    finally:
        if as_json:
            print(json.dumps({"rows": rows}))
    if lost := [row for row in rows if FAILED in row]:
        raise EmulationError(f"{len(lost)} parts of the benchmark ended early; their rows say why")
    raise typer.Exit(0 if all(row.get("judged_right", True) for row in rows) else EXIT_FAILED)


def _print_row(row: Mapping[str, Any]) -> None:
    facts = (f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items())
    out.print("  ".join(facts), highlight=False, soft_wrap=True)


@app.command()
def clean() -> None:
    """Remove leftovers of crashed runs, and nothing else."""
    from testbed.host.cleanup import clean as remove

    out.print(f"Removed: {remove()}.", highlight=False)


@app.command(name="test", context_settings={"ignore_unknown_options": True})
def all_tests(
    _arguments: Annotated[list[str] | None, typer.Argument(help="for pytest")] = None,
) -> None:
    """Check style and types, and run all tests; all further arguments go to pytest."""
    # The script does it without this program, which lists the command for `--help` only.
    what = "is done by the script, not by its Python program"
    raise InputError(Problem("test", what, "run `sudo ./railbed test`"))


def main() -> NoReturn:
    """Run a command; print every error as a message and exit with its exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    # A shell starts background jobs with SIGINT ignored; a run must be stoppable all the same.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        # Typer turns both an Exit and a KeyboardInterrupt into the code that it returns.
        exit_code = app(prog_name="railbed", standalone_mode=False) or 0
    except RailbedError as error:
        _end(str(error), error.exit_code)
    except Exception as error:
        _end(_usage_or_bug(error), getattr(error, "exit_code", EXIT_EMULATION_FAILED))
    if exit_code == EXIT_INTERRUPTED:
        _end("interrupted; everything was taken down", EXIT_INTERRUPTED)
    sys.exit(exit_code)


def _usage_or_bug(error: Exception) -> str:
    """Message for an error: Click's own if it is wrong usage, else a bug with a crash report."""
    if hasattr(error, "format_message"):
        return f"{error.format_message()} (`railbed --help` lists the commands)"
    report = Path("railbed-crash.txt").resolve()
    report.write_text(traceback.format_exc())
    return f"a bug in Railbed: {type(error).__name__}: {error}; please report {report}"


def _end(message: str, exit_code: int) -> NoReturn:
    err.print(f"railbed: {message}", style="red", highlight=False, markup=False, soft_wrap=True)
    sys.exit(exit_code)


def _terminated(_number: int, _frame: FrameType | None) -> None:
    """Handle SIGTERM as Ctrl-C, which takes everything down."""
    raise KeyboardInterrupt
