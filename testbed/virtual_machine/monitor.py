"""The monitor of a QEMU process (QEMU Machine Protocol, docs/interop/qmp-spec.txt of QEMU)."""

import json
from collections.abc import Iterator
from contextlib import suppress
from subprocess import Popen
from typing import Any

from model.errors import EmulationError

OPTIONS = ("-qmp", "stdio")


class Monitor:
    """Commands to a QEMU process whose standard input and output are pipes without buffers."""

    def __init__(self, process: "Popen[bytes]") -> None:
        self._process = process
        self.execute("qmp_capabilities")

    def execute(self, command: str, **arguments: Any) -> Any:
        """Execute a command and return its answer; raises `EmulationError` if QEMU refuses it."""
        assert self._process.stdin
        asked = json.dumps({"execute": command, "arguments": arguments})
        with suppress(BrokenPipeError):  # it has ended, and said why
            self._process.stdin.write(f"{asked}\n".encode())
        answer = next(said for said in self._said() if "return" in said or "error" in said)
        if "error" in answer:
            raise EmulationError(f"virtual machine: {asked}: {answer['error']['desc']}")
        return answer["return"]

    def command_line(self, line: str) -> None:
        """Execute a line of QEMU's command line for people; raises `EmulationError` if it fails.

        Such a command says nothing if it succeeds.
        """
        said = str(self.execute("human-monitor-command", **{"command-line": line})).strip()
        if said:
            raise EmulationError(f"virtual machine: {line}: {said}")

    def wait_for(self, event: str) -> None:
        """Wait for an event; raises `EmulationError` if the machine ends before."""
        next(said for said in self._said() if said.get("event") == event)

    def _said(self) -> Iterator[dict[str, Any]]:
        assert self._process.stdout
        for line in self._process.stdout:
            yield json.loads(line)
        raise EmulationError("virtual machine: QEMU ended before it answered")
