"""A reaper: a process that waits for the end of this one, however it ends, and then cleans up."""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from linux.processes.lifetime import end

# The shell waits for the end of its input, whose other end this process alone has.
PROGRAM = 'read -r _; exec "$@"'


@contextmanager
def reaper(
    command: Sequence[str], log: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Execute a command if this process ends within the context.

    Neither the kernel nor the run's own end removes, for example, a container that was requested
    but has not started yet.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            ["sh", "-c", PROGRAM, "reaper", *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd="/",
            env={**os.environ, **environment},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end(process)
