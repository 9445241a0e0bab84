"""The command line. Standard output is for results, standard error for everything else.

Exit codes: 0 ok, 1 an expectation failed, 2 bad input, 3 the machine is not ready, 4 the
emulation failed, 130 interrupted. Without a reader of its output, it dies of SIGPIPE.
"""

import gc
import os
import signal
import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from select import POLLERR, poll
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from commands.plugins import GROUP, OPTION, Plugins, enter_plugins, raised_by_plugin
from linux.machine.resources import of_the_machine
from linux.processes.interruptions import end_program, is_ending
from model.errors import EXIT_INTERRUPTED, InputError, Interrupted, Problem, RailbedError

HELP = ["--help", "-h"]
VERSION, COMPLETION = "--version", ("--install-completion", "--show-completion")
SHELLS = "it is for the shell that calls it: bash, zsh, fish, powershell or pwsh"
# Ctrl-C, `kill`, and the end of the terminal.
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_EMULATION_FAILED = 4
STDIN, STDOUT, STDERR = 0, 1, 2
# What `--help` says of each command, in its order.
COMMANDS = tomllib.loads(Path(__file__).with_name("table.toml").read_text(encoding="utf-8"))


class Listed(TyperCommand):
    """A command of the table: `--help` lists it, and its module is imported when it is called.

    The module has a function of the command's name, or a `function` of another one where Python has
    that name; if it returns that an expectation failed, Railbed's exit code is 1. Options behind
    `takes_words` may be those of another program.
    """

    def __init__(
        self, name: str, *, help: str, example: str, function: str = "", takes_words: bool = False
    ) -> None:
        super().__init__(name, help=help)
        self._example, self._function, self._takes_words = example, function or name, takes_words

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> Any:
        """Begin the call of the command, or the completion of its words."""
        module = import_module(f"commands.{self.name}")
        # If `commands/__main__.py` has disabled it: modules stay, and need no search.
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        alone = typer.Typer(add_completion=False)
        alone.command(
            self.name,
            help=self.help,
            epilog=f"Example: {self._example}",
            context_settings={"ignore_unknown_options": self._takes_words},
        )(getattr(module, self._function))
        try:
            return get_command(alone).make_context(info_name, args, *rest, **extra)
        except typer.TyperException as error:
            # Typer's parser does not say whose option lacks its value, or takes none.
            if getattr(error, "ctx", None) is None:
                vars(error)["ctx"] = typer.Context(self, extra.get("parent"), info_name)
            raise


class Commands(TyperGroup):
    """The commands of the table."""

    def __init__(self, **settings: Any) -> None:
        listed = {name: Listed(name, **row) for name, row in COMMANDS.items()}
        super().__init__(**{**settings, "commands": listed})


app = typer.Typer(
    cls=Commands,
    context_settings={"help_option_names": HELP},
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        from linux.files.program_files import program_version, release

        print(f"railbed {release()}, modules {program_version()}")
        raise typer.Exit


@app.callback()
def railbed(
    _version: Annotated[
        bool,
        typer.Option(VERSION, callback=_print_version, is_eager=True, help="show the version"),
    ] = False,
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """An emulation testbed for rail-only and rail-optimized GPU-cluster fabrics."""
    from importlib.metadata import entry_points

    if plugins or entry_points(group=GROUP):
        enter_plugins(plugins)
        gc.enable()  # their libraries may want to be collected at the end: DuckDB prints those left


def main() -> NoReturn:
    """Run a command; print every error as a message and exit with its exit code."""
    _replace_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Names of files may be no text: characters that cannot be encoded are escaped.
            stream.reconfigure(errors="backslashreplace")
    for number in ENDINGS:
        # A shell starts background jobs with SIGINT ignored; signals that nohup(1) ignores stay
        # ignored.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupted)
    _forget_displays()
    stdout, message = os.fstat(STDOUT), ""
    try:
        _require_folder()
        _require_alone(sys.argv[1:])
        arguments = plugins_first(sys.argv[1:]) or [HELP[0]]
        if not set(HELP).isdisjoint(arguments):
            _widen_help()
        exit_code = _called(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as ended:
        # Click and Rich turn a broken pipe into exit code 1, which has a meaning of its own.
        broken = ended if isinstance(ended, BrokenPipeError) else ended.__context__
        if not isinstance(broken, BrokenPipeError):
            raise
        _die_unread(stdout)
        message, exit_code = _usage_or_bug(broken), EXIT_EMULATION_FAILED
    except RailbedError as error:
        message, exit_code = str(error), error.exit_code
        if is_ending() and not isinstance(error, Interrupted):
            message, exit_code = str(Interrupted(error)), EXIT_INTERRUPTED
    except KeyboardInterrupt:  # before Typer, which returns its exit code
        exit_code = EXIT_INTERRUPTED
    except Exception as error:
        exit_code = EXIT_INTERRUPTED
        if not is_ending():
            wrong = raised_by_plugin(error)
            message = str(wrong or _usage_or_bug(error))
            exit_code = getattr(wrong or error, "exit_code", EXIT_EMULATION_FAILED)
    finally:
        _ignore_endings()  # what ends already is not interrupted
    if exit_code == EXIT_INTERRUPTED:
        message = message or "interrupted; everything was taken down"
    if message:
        # No error is handled any more, which would keep data bases open: DuckDB prints those left.
        _end(message, exit_code)
    sys.exit(exit_code)


def _replace_closed() -> None:
    """Open /dev/null as each closed standard stream: another file would get its number.

    Children inherit it.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdin = sys.stdin or os.fdopen(STDIN)


def _forget_displays() -> None:
    """Remove environment variables that name a display which is not there."""
    # The number is unknown (shutil.get_terminal_size): Rich would print nothing.
    if os.environ.get("COLUMNS") == "0":
        del os.environ["COLUMNS"]
    # Figures are files, and the backend of a user's notebook may not be installed here.
    os.environ.pop("MPLBACKEND", None)


def _widen_help() -> None:
    """Give `--help` at least the width of tables, in less of which names of options are cut off."""
    from typer import rich_utils

    from commands.output import out

    rich_utils.MAX_WIDTH = out.width


def _die_unread(stdout: os.stat_result) -> None:
    """Die of SIGPIPE, as programs do, if nobody reads an output any more; else return.

    `stdout` is what it was at the start: Rich turns one that nobody reads into /dev/null.
    """
    outputs = poll()
    for output in (STDOUT, STDERR):
        outputs.register(output, POLLERR)
    unread = any(event & POLLERR for _, event in outputs.poll(0))
    if unread or not os.path.samestat(os.fstat(STDOUT), stdout):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.raise_signal(signal.SIGPIPE)


def _require_folder() -> None:
    """Raise `InputError` if the current folder was deleted: no path would lead anywhere."""
    try:
        Path.cwd()
    except FileNotFoundError:
        problem = Problem("the current folder", "was deleted", "change to another")
        raise InputError(problem) from None


def _require_alone(arguments: Sequence[str]) -> None:
    """Raise `InputError` if a word follows an option that ends the command: it would be ignored."""
    if len(arguments) > 1 and arguments[0] in (VERSION, *COMPLETION):
        hint = SHELLS if arguments[0] in COMPLETION else ""
        raise InputError(Problem(arguments[0], "takes no further arguments", hint))


def _called(arguments: Sequence[str]) -> int:
    """Call a command and return its exit code.

    Raises `InputError` if completion has another shell, or a shell's file that cannot be written.
    """
    install, show = COMPLETION
    try:
        # Typer returns what the command does; for an Exit or a KeyboardInterrupt, its exit code.
        exit_code = int(app(arguments, prog_name="railbed", standalone_mode=False) or 0)
    except OSError as error:
        if arguments[0] != install or error.filename is None:
            raise
        what = f"{error.filename} cannot be written: {error.strerror}"
        hint = f"add what {show} prints to a file that your shell reads"
        raise InputError(Problem(install, what, hint)) from None
    if exit_code == 1 and arguments[0] in COMPLETION:  # Typer has named the shell
        raise InputError(Problem(arguments[0], "does not know this shell", SHELLS))
    return exit_code


def plugins_first(arguments: Sequence[str]) -> list[str]:
    """Put `--plugin` before the command, where Typer has the options of all commands.

    Words after `--` belong to a user's own command. Raises `InputError` for one without its file.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    moved, left = list[str](), list[str]()
    words: Iterator[str] = iter(arguments[:end])
    for word in words:
        if word == OPTION:
            file = next(words, None)
            if file is None:  # the command would be taken for it
                raise InputError(Problem(OPTION, "needs a file"))
            moved += [word, file]
        else:
            (moved if word.startswith(f"{OPTION}=") else left).append(word)
    return [*moved, *left, *arguments[end:]]


def _usage_or_bug(error: Exception) -> str:
    """Message for an error: Click's own for wrong usage, else a bug with its report."""
    if hasattr(error, "format_message"):
        said = error.format_message().replace("Value error, ", "")  # Pydantic's
        context = getattr(error, "ctx", None)
        if context is None or context.parent is None:
            return f"{said} (`./railbed --help` lists the commands)"
        return f"{said} (`./{context.command_path} --help` lists its options)"
    # A command that ends well has no bug to report.
    from results.store.records import report_bug

    of_machine = of_the_machine(error)
    return _of_output() + of_machine if of_machine else str(report_bug(error))


def _of_output() -> str:
    """Name standard output if it cannot be written: what is left of it fails again."""
    try:
        print(end="", flush=True)
    except OSError:
        return "standard output cannot be written: "
    return ""


def _end(message: str, exit_code: int) -> NoReturn:
    from commands.output import err

    for stream, write in (
        (sys.stderr, partial(err.print, f"railbed: {message}", style="red", soft_wrap=True)),
        (sys.stdout, partial(print, end="", flush=True)),
    ):
        try:
            write()
        except (OSError, SystemExit):
            # The terminal is gone, the device full, or nobody reads a pipe, at which Rich ends.
            # What is left of the output must not fail at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(exit_code)


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    """Take everything down; further signals do not disturb that."""
    _ignore_endings()
    end_program()


def _ignore_endings() -> None:
    for number in ENDINGS:
        signal.signal(number, lambda *_: None)
