"""A virtual machine with stock Debian 12 and its kernel, which executes one job."""

from collections.abc import Mapping
from pathlib import Path
from subprocess import DEVNULL, Popen

from linux.processes import dies_with_us
from model.errors import EmulationError
from testbed.virtual_machine.exchange import Exchange
from testbed.virtual_machine.machine import Machine
from testbed.virtual_machine.work_folder import work_folder

POLL_S = 0.1


def execute(
    machine: Machine, job: str, files: Mapping[str, str], back: Path, *, shows_output: bool = True
) -> tuple[int, str]:
    """Execute a shell script in a machine's tree; return its exit code and standard output.

    Standard error is passed on while the job runs, and so is standard output if `shows_output`. The
    folder `runs` of the tree is extracted into `back` afterwards. Raises `EmulationError` if the
    machine ends before the job does.
    """
    with work_folder() as folder:
        exchange = Exchange(folder)
        exchange.put({"job": job, **files})
        with machine.running(exchange) as process:
            shown = [(exchange.stderr, 2)] + ([(exchange.stdout, 1)] if shows_output else [])
            followers = [_follow(file, stream, process) for file, stream in shown]
            process.wait()
        for follower in followers:
            follower.wait()
        exit_code = exchange.take(back)
        if exit_code is None:
            raise EmulationError("virtual machine: it ended before its job did")
        return exit_code, exchange.stdout.read_text()


def _follow(file: Path, stream: int, process: "Popen[bytes]") -> "Popen[bytes]":
    """Copy a growing file to a stream of this process until the machine has ended."""
    tail = ["tail", "--bytes=+1", "--follow", f"--sleep-interval={POLL_S}", f"--pid={process.pid}"]
    return Popen(dies_with_us([*tail, str(file)]), stdin=DEVNULL, stdout=stream)
