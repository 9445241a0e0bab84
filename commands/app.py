"""The command line. Standard output is for results, standard error for everything else.

Exit codes: 0 ok, 1 an expectation failed, 2 bad input, 3 the machine is not ready, 4 the
emulation failed, 130 interrupted.
"""

import os
import signal
import sys
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from commands.bench import bench
from commands.cost import cost
from commands.decide import decide
from commands.examples import add_examples
from commands.exec import execute
from commands.export import export
from commands.failures import failures
from commands.list import print_list, printed_whole
from commands.live import live
from commands.live_page import DEFAULT_AT, Live, LiveAt, page, refuse_virtual
from commands.options import (
    CONTAINER,
    NEEDS_NO_ROOT,
    VERSION,
    AsJson,
    Capture,
    Clock,
    Datapath,
    Fresh,
    Overrides,
    Proxies,
    RunName,
    ScenarioPath,
    Store,
    datapath_override,
    is_virtual,
    load_for_this_machine,
    require_alone,
    require_folder,
)
from commands.output import err, exit_with, out, print_result, show_run
from commands.paper import paper
from commands.plugins import Plugins, enter_plugins, plugins_first, require_built_in
from commands.query import query_runs
from commands.ready import proxy_kind, ready
from commands.report import report
from commands.sweep import sweep
from commands.timeline import timeline
from commands.training import traffic, train
from commands.up import up
from linux.files.program_files import ROOT, program_version, release
from linux.machine.resources import OF_THE_MACHINE
from linux.processes.interruptions import end_program, is_ending
from model.errors import EXIT_INTERRUPTED, InputError, NotReady, Problem, RailbedError
from results.store.crash import report_bug
from results.store.runs import DEFAULT_STORE, find_run, read_result
from scenarios.library_files import LIBRARY, scenario_file

if TYPE_CHECKING:
    from execution.live.feed import LiveFeed
    from model.prediction.machine import Machine
    from scenarios.scenario import Scenario

# Least memory of a virtual machine: Debian and Railbed with its environment take half of it.
LEAST_MIB = 2048
# Ctrl-C, `kill`, and the end of the terminal.
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_EMULATION_FAILED = 4


app = typer.Typer(
    context_settings={"help_option_names": ["--help", "-h"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        out.print(f"railbed {release()}, modules {program_version()}")
        raise typer.Exit


@app.callback()
def railbed(
    _version: Annotated[
        bool,
        typer.Option(
            VERSION, callback=_print_version, is_eager=True, help="print the version and exit"
        ),
    ] = False,
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """An emulation testbed for rail-only and rail-optimized GPU-cluster fabrics."""
    enter_plugins(plugins)


@app.command()
def demo(
    as_json: AsJson = False,
    proxies: Proxies = None,
    datapath: Datapath = None,
    clock: Clock = "real",
    fresh: Fresh = False,
) -> None:
    """Run the quickstart: both fabrics, an AllReduce and an all-to-all, measured and modeled."""
    quickstart = LIBRARY / "quickstart.yaml"
    run(quickstart, as_json, proxies, datapath=datapath, clock=clock, fresh=fresh)


@app.command()
def run(
    scenario: ScenarioPath,
    as_json: AsJson = False,
    proxies: Proxies = None,
    overrides: Overrides = [],  # noqa: B006  (typer wants a plain default)
    store: Store = DEFAULT_STORE,
    datapath: Datapath = None,
    clock: Clock = "real",
    fresh: Fresh = False,
    live: Live = False,
    live_at: LiveAt = DEFAULT_AT,
    capture: Capture = [],  # noqa: B006
) -> None:
    """Run one scenario."""
    changes = [*overrides, *datapath_override(datapath)]
    if is_virtual(clock, proxies, fresh=fresh):
        if capture:
            raise InputError(Problem("--capture", "does not work under the virtual clock"))
        from execution.virtual_clock.run import run_virtually

        refuse_virtual(live)
        result = run_virtually(_for_virtual_machine(scenario, changes), store, fresh=fresh)
    else:
        with page(live, live_at) as feed:
            result = _run(scenario, changes, proxies or CONTAINER, store, feed, capture)
    show_run(result, as_json)
    exit_with(failed=result["verdict"] == "fail")


def _for_virtual_machine(path: Path, overrides: list[str]) -> "Scenario":
    """A scenario for the virtual clock's machine, whose costs are known."""
    from scenarios.load import load
    from scenarios.planning.machine_profile import virtual_machine

    scenario = load(scenario_file(path), overrides, virtual_machine())
    require_built_in(scenario)
    return scenario


def _run(
    path: Path,
    overrides: list[str],
    proxies: str,
    store: Path,
    feed: "LiveFeed | None",
    capture: list[str],
) -> dict[str, Any]:
    from execution.cases.progress import Bar, Lines
    from scenarios.planning.kernel_support import require_possible

    scenario = load_for_this_machine(path, overrides)
    kind = ready(proxies, NEEDS_NO_ROOT)
    require_possible(scenario)
    # Importing the testbed's libraries takes a second: mistakes are reported before.
    from execution.run import run as run_scenario

    with Bar(err, scenario.executions) if err.is_terminal else Lines(err) as listener:
        if feed is None:
            return run_scenario(scenario, kind, store, listener, capture=capture)
        from execution.live.feed import LiveRun

        shown = LiveRun(feed, listener, scenario.executions)
        return run_scenario(scenario, kind, store, shown, shown, capture)


app.command()(sweep)
app.command()(failures)
app.command(name="exec", context_settings={"ignore_unknown_options": True})(execute)


@app.command()
def check(scenario: ScenarioPath, overrides: Overrides = []) -> None:  # noqa: B006
    """Check a scenario without running it: all problems at once. Needs no root."""
    from commands.check import describe
    from scenarios.planning.kernel_support import require_possible

    checked = load_for_this_machine(scenario, overrides)
    require_possible(checked)
    out.print(f"{scenario}: ok", soft_wrap=True)
    describe(checked, out)


@app.command()
def plan(scenario: ScenarioPath, overrides: Overrides = []) -> None:  # noqa: B006
    """Estimate a scenario's load on this machine, and whether it fits. Needs no root."""
    from scenarios.planning.machine_profile import known_machine
    from scenarios.planning.plan import plan as planned
    from scenarios.planning.plan_table import print_chosen, print_crossings, print_plan

    machine, loaded = known_machine(), load_for_this_machine(scenario, overrides)
    print_plan(planned(loaded, machine), machine, out)
    print_chosen(loaded, out)
    print_crossings(loaded, out)


@app.command()
def verify(
    scenario: ScenarioPath,
    as_json: AsJson = False,
    proxies: Proxies = None,
    overrides: Overrides = [],  # noqa: B006
    datapath: Datapath = None,
    clock: Clock = "real",
    fresh: Fresh = False,
) -> None:
    """Check that packets take the intended paths on a scenario's fabrics, and stay on rails."""
    from results.tables.measured.path_check import print_verify

    changes = [*overrides, *datapath_override(datapath)]
    if is_virtual(clock, proxies, fresh=fresh):
        from execution.virtual_clock.run import verify_virtually

        loaded = _for_virtual_machine(scenario, changes)
        result = verify_virtually(loaded, DEFAULT_STORE, fresh=fresh)
    else:
        result = _verify(load_for_this_machine(scenario, changes), proxies or CONTAINER)
    print_result(result, as_json, print_verify)
    exit_with(failed=result["verdict"] == "fail")


def _verify(scenario: "Scenario", proxies: str) -> dict[str, Any]:
    from scenarios.planning.kernel_support import require_datapaths

    kind = ready(proxies, NEEDS_NO_ROOT)
    require_datapaths(scenario)
    from execution.cases.progress import Lines
    from execution.path_check import verify as verified
    from results.documents.path_check import verify_object

    return verify_object(scenario.name, list(verified(scenario, kind, Lines(err))))


@app.command(name="list")
def list_all(store: Store = DEFAULT_STORE) -> None:
    """List the scenarios that come with Railbed, and the stored runs."""
    print_list(store, out)


@app.command()
def show(
    run_name: RunName,
    as_json: AsJson = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """Show a stored run."""
    run = find_run(store, run_name)
    with printed_whole(out, run):
        show_run(read_result(run), as_json)


@app.command()
def compare(
    first: RunName,
    second: RunName,
    as_json: AsJson = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """Compare two stored runs, case by case, by the spread of their repeats."""
    from commands.compare import compared
    from results.tables.measured.run_diff import print_comparison

    with printed_whole(out, store):
        print_result(compared(store, first, second), as_json, print_comparison)


app.command(name="query")(query_runs)
app.command()(export)
app.command()(report)
app.command()(timeline)
app.command()(up)
app.command()(live)


@app.command()
def doctor(
    proxies: Proxies = None,
    measure: Annotated[bool, typer.Option("--measure", help="measure the machine again")] = False,
) -> None:
    """Check this machine's requirements and print its costs; measure them if none are stored."""
    from rich.text import Text

    from scenarios.planning.plan_table import print_machine
    from testbed.host.preflight import checks, datapath_in_words, unneeded_checks
    from testbed.nodes.datapath import default_datapath

    found = checks(proxy_kind(proxies or CONTAINER))
    for item in (*unneeded_checks(), *found):
        lacking = Text("missing", "red") if item in found else Text("note   ", "yellow")
        sign = Text("ok     ", "green") if item.ready else lacking
        remedy = "" if item.ready else f"; {item.remedy}"
        out.print(sign, f"{item.name}: {item.state}{remedy}", soft_wrap=True)
    switches = datapath_in_words(default_datapath())
    out.print(f"        rail and spine switches: {switches}")
    missing = [item for item in found if not item.ready]
    if missing:
        raise NotReady(f"{len(missing)} of {len(found)} checks failed; each says how to fix it")
    print_machine(_measured(again=measure), out)


@app.command(context_settings={"ignore_unknown_options": True})
def vm(
    command: Annotated[list[str], typer.Argument(help="command and its arguments, after `--`")],
    memory: Annotated[
        int, typer.Option(metavar="MIB", help="memory of the virtual machine")
    ] = 4096,
    docker: Annotated[bool, typer.Option(help="with a Docker Engine inside")] = False,
    suite: Annotated[
        str, typer.Option(help="Debian's release in it, with its kernel: bookworm or trixie")
    ] = "bookworm",
) -> None:
    """Execute a command in a copy of Railbed's folder, on a virtual machine of Debian's kernel."""
    from testbed.virtual_machine.image import Suite
    from testbed.virtual_machine.job import execute_in_copy

    if suite not in list(Suite):
        raise InputError(Problem("--suite", f"must be {' or '.join(Suite)}, got {suite!r}"))
    _require_memory(memory)
    of = Suite(suite)
    raise typer.Exit(
        execute_in_copy(ROOT, command, Path.cwd(), suite=of, memory_mib=memory, docker=docker)
    )


def _require_memory(mib: int) -> None:
    """Raise `InputError` for a virtual machine that Debian, or this machine, has no room for."""
    from execution.virtual_clock.machines import available_mib

    most = int(available_mib())
    if not LEAST_MIB <= mib <= most:
        what = f"must be {LEAST_MIB} to {most} MiB, which this machine has free, got {mib}"
        raise InputError(Problem("--memory", what))


def _measured(*, again: bool) -> "Machine":
    """Return this machine's measured costs; measure them now if `again`, or if none are stored."""
    from scenarios.planning.machine_profile import keep, known_machine, this_machine

    machine = None if again else known_machine()
    if machine is None:
        from execution.machine.machine_costs import measure as measure_machine

        err.print("Measuring this machine: about 20 s, in which it should do nothing else.")
        machine = measure_machine(this_machine())
        err.print(f"Kept in {keep(machine)}.", soft_wrap=True)
    return machine


for analytic in (traffic, train, cost, decide, paper):
    app.command()(analytic)
app.command()(bench)


@app.command()
def clean(
    cache: Annotated[
        bool, typer.Option("--cache", help="virtual clock: also its images and known results")
    ] = False,
) -> None:
    """Remove leftovers of crashed runs, and nothing else."""
    from results.tables.measured.run import human_bytes
    from testbed.host.cleanup import clean as remove
    from testbed.virtual_machine.cache import clear

    if os.geteuid() == 0 or not cache:  # every user has a cache
        out.print(f"Removed: {remove()}.")
    if cache:
        out.print(f"Removed from the cache: {human_bytes(clear())}.")


@app.command(name="test", context_settings={"ignore_unknown_options": True})
def all_tests(
    _arguments: Annotated[list[str] | None, typer.Argument(help="arguments of pytest")] = None,
) -> None:
    """Check style and types, and run all tests; with arguments, run pytest with them."""
    # The script does it without this program, which lists the command for `--help` only.
    raise InputError(Problem("test", "is done by the script", "run `sudo ./railbed test`"))


add_examples(app.registered_commands)


def main() -> NoReturn:
    """Run a command; print every error as a message and exit with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Names of files may be no text: characters that cannot be encoded are escaped.
            stream.reconfigure(errors="backslashreplace")
    for number in ENDINGS:
        # A shell starts background jobs with SIGINT ignored; signals that nohup(1) ignores stay
        # ignored.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupted)
    try:
        # Typer turns both an Exit and a KeyboardInterrupt into the code that it returns.
        require_folder()
        require_alone(sys.argv[1:])
        arguments = plugins_first(sys.argv[1:])
        exit_code = app(arguments, prog_name="railbed", standalone_mode=False) or 0
    except RailbedError as error:
        _end(str(error), error.exit_code)
    except Exception as error:
        if not is_ending():
            _end(_usage_or_bug(error), getattr(error, "exit_code", EXIT_EMULATION_FAILED))
        exit_code = EXIT_INTERRUPTED
    if exit_code == EXIT_INTERRUPTED:
        _end("interrupted; everything was taken down", EXIT_INTERRUPTED)
    sys.exit(exit_code)


def _usage_or_bug(error: Exception) -> str:
    """Message for an error: Click's own for wrong usage, else a bug with its report."""
    if hasattr(error, "format_message"):
        context = getattr(error, "ctx", None)
        if context is None or context.parent is None:
            return f"{error.format_message()} (`railbed --help` lists the commands)"
        return f"{error.format_message()} (`{context.command_path} --help` lists its options)"
    if isinstance(error, OSError) and error.errno in OF_THE_MACHINE:
        return str(error)
    return str(report_bug(error))


def _end(message: str, exit_code: int) -> NoReturn:
    with suppress(OSError):  # the terminal may be gone
        err.print(f"railbed: {message}", style="red", soft_wrap=True)
    sys.exit(exit_code)


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    """Take everything down; further signals do not disturb that."""
    for number in ENDINGS:
        signal.signal(number, lambda *_: None)
    end_program()
