"""Mininet's command line on a fabric: its own commands corrected, and further commands.

Mininet asks each node for one address; here, the address of a GPU depends on who sends to it. Its
commands for links and switches would bypass shapers and rules: further commands replace them.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import getdoc
from pathlib import Path
from typing import Any, NoReturn

from mininet.cli import CLI
from mininet.log import lg, output
from mininet.net import Mininet
from mininet.node import Node

from linux.processes.interruptions import interrupt
from model.errors import RailbedError
from model.fabric.addressing import address_of, nic_address
from testbed.fabric.mininet_network import GpuProxyNode


@dataclass(frozen=True)
class Command:
    """A command beside Mininet's, or in place of the one with the same name.

    `run` gets the words after the name, and raises `RailbedError` with a message for its user; its
    docstring is the help if there is no other. `complete` gets the words before the one that is
    being typed, and returns the possible words.
    """

    name: str
    run: Callable[[Sequence[str]], None]
    complete: Callable[[Sequence[str]], Sequence[str]] = lambda _before: ()
    help: str = ""


class SessionEnded(BaseException):
    """Raised in the main thread when a signal asks the command line to end."""

    def __init__(self, number: int) -> None:
        self.number = number


class FabricCommandLine(CLI):  # type: ignore[misc]
    """Mininet's command line; no error of a command ends it."""

    prompt = "railbed> "
    doc_header = "Commands (help COMMAND says more):"
    helpStr = (  # noqa: N815  (Mininet's name)
        "A node executes a command: NODE COMMAND. Names of GPUs become the addresses at which the\n"
        "node reaches them:\n"
        "  d0g0 ping -c 3 d1g1\n"
        "A program that reads keys itself needs no echo: noecho NODE COMMAND.\n"
    )

    def __init__(self, network: Mininet, greeting: str, commands: Sequence[Command]) -> None:
        for command in commands:
            self._add(command)
        output(f"{greeting}\n")
        super().__init__(network)

    def _add(self, command: Command) -> None:
        """Make a command known under the names that `cmd.Cmd` looks for."""

        def do(line: str) -> None:
            command.run(line.split())

        def complete(text: str, line: str, begin: int, _end: int) -> list[str]:
            return _beginning(command.complete(line[:begin].split()[1:]), text)

        do.__doc__ = command.help or getdoc(command.run)
        setattr(self, f"do_{command.name}", do)
        setattr(self, f"complete_{command.name}", complete)

    def get_names(self) -> list[str]:
        """Attributes in which `cmd.Cmd` looks for commands, those of this object included."""
        return dir(self)

    def initReadline(self) -> None:  # noqa: N802  (Mininet's name)
        """Read and keep a history if a person types."""
        if self.isatty():
            # A link's name is one word.
            import readline

            readline.set_completer_delims(" \t\n")
            super().initReadline()

    def onecmd(self, line: str) -> Any:
        """Execute a line; print its error, if any."""
        try:
            return super().onecmd(line)
        except RailbedError as error:
            output(f"{error}\n")
        except SystemExit:  # `py exit()` ends here, and closes standard input, too
            return self.do_exit(line)
        except Exception as error:
            output(f"{line.split()[0]}: {type(error).__name__}: {error}\n")
        return None

    def default(self, line: str) -> Any:
        """Execute a command in a node, with addresses for the names of GPUs."""
        first, *words = line.split(" ")
        if first not in self.mn:
            output(f"Unknown command: {first}. `help` lists commands, `nodes` lists nodes.\n")
            return None
        return super().default(" ".join([first, *(self._address(first, word) for word in words)]))

    def _address(self, sender: str, word: str) -> str:
        """Return the address at which a node reaches a GPU of this name; other words unchanged."""
        source, node = self.mn[sender], self.mn.nameToNode.get(word)
        if not isinstance(node, GpuProxyNode):
            return word
        if not isinstance(source, GpuProxyNode):
            return str(nic_address(node.gpu))
        return str(address_of(node.gpu, source.gpu))

    def waitForNode(self, node: Node) -> None:  # noqa: N802  (Mininet's name)
        """Print a node's output until its command ends; pass it the keys of a terminal.

        Lines of a script are left for the command line.
        """
        if self.isatty():
            super().waitForNode(node)
            return
        while node.waiting:
            output(node.monitor())

    def do_net(self, _line: str) -> None:
        """List each node's interfaces, with the node at the other end of the link."""
        for node in self.mn.values():
            ends = (f"{i.name}:{_other_end(node, i)}" for i in node.intfList() if i.link)
            output(f"{node.name} {' '.join(ends)}\n")

    def do_source(self, line: str) -> None:
        """Execute the commands of a file: source FILE."""
        try:
            commands = Path(line).read_text().splitlines()
        except (OSError, ValueError) as error:
            output(f"source: {line or 'no file'}: cannot be read: {error}\n")
            return
        for command in commands:
            self.onecmd(self.precmd(command))

    def do_xterm(self, line: str, term: str = "xterm") -> None:
        """Open a terminal for each node: xterm node1 node2 ... Needs an X display."""
        if self._has_display(term):
            super().do_xterm(line, term)

    def do_x(self, line: str) -> None:
        """Start an X program in a node: x node command. Needs an X display."""
        node = line.partition(" ")[0]
        if node not in self.mn:
            output("Usage: x NODE COMMAND, with a node from `nodes`.\n")
        elif self._has_display("x"):
            super().do_x(line)

    def _has_display(self, command: str) -> bool:
        if "DISPLAY" not in os.environ:
            output(f"{command}: no X display (DISPLAY is not set); use NODE COMMAND\n")
        return "DISPLAY" in os.environ

    def completenames(self, text: str, *_ignored: Any) -> list[str]:
        """Complete the first word: commands, and nodes that execute one."""
        return _beginning([*super().completenames(text), *self.mn], text)

    def completedefault(self, text: str, *_ignored: Any) -> list[str]:
        """Complete any other word: the names of nodes."""
        return _beginning(list(self.mn), text)


def _beginning(words: Sequence[str], text: str) -> list[str]:
    return sorted({word for word in words if word.startswith(text)})


def _other_end(node: Node, interface: Any) -> str:
    link = interface.link
    return str((link.intf2 if link.intf1.node is node else link.intf1).node.name)


def open_command_line(network: Mininet, greeting: str, commands: Sequence[Command]) -> None:
    """Serve the command line on standard input and output until its user leaves it.

    Ctrl-C ends a command; other signals end the command line, and then do what they did before.
    """
    try:
        with _own_signals():
            FabricCommandLine(network, greeting, commands)
    except SessionEnded as ended:
        signal.raise_signal(ended.number)


@contextmanager
def _own_signals() -> Iterator[None]:
    """Let Ctrl-C interrupt a command, and other signals end the command line; print to stdout.

    Signals that nohup(1) ignores stay ignored. Output that nobody can read ends the command line:
    logging would print a traceback for each line of it.
    """
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, _interrupt) for number in numbers}
    (printer,) = lg.handlers
    stream, handle_error = printer.stream, printer.handleError
    printer.setStream(sys.stdout)
    printer.handleError = _raise_again
    try:
        yield
    finally:
        # `setStream` would flush the old one, which may be what failed.
        printer.stream, printer.handleError = stream, handle_error
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise_again(_record: object) -> NoReturn:
    """Raise what is being handled."""
    raise


def _interrupt(number: int, _frame: object) -> None:
    interrupt(KeyboardInterrupt() if number == signal.SIGINT else SessionEnded(number))
