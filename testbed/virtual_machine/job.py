"""Shell scripts that the virtual machine executes in its copy of Railbed."""

import shlex
from collections.abc import Sequence
from pathlib import Path

# Tells the program inside that its clock is virtual.
CLOCK_VARIABLE = "RAILBED_CLOCK"


def command_job(command: Sequence[str], proxy_root: Path | None = None) -> str:
    """A job that executes a command; with the proxies' root, beside a Docker Engine."""
    docker = (
        "export RAILBED_NO_DOCKER=1"
        if proxy_root is None
        else f"RAILBED_PROXY_ROOT={shlex.quote(str(proxy_root))} testbed/provision.sh"
    )
    return f"{docker}\n{shlex.join(command)}\n"


def program_job(arguments: Sequence[str], seed: int) -> str:
    """A job that executes Railbed with arguments, of which `$RAILBED_HANDED` may be a part.

    `seed` is of the machine's random numbers.

    Addresses and hashes are those of each other execution, so that memory is used in the same way.
    """
    words = " ".join(f'"{argument}"' for argument in arguments)
    return (
        "echo 0 >/proc/sys/kernel/randomize_va_space\n"
        f"export RAILBED_NO_DOCKER=1 PYTHONHASHSEED=0 PYTHONPATH=$PWD {CLOCK_VARIABLE}=virtual\n"
        f"python3 testbed/virtual_machine/seed.py {seed}\n"
        f".venv/bin/python -P -m scenarios {words}\n"
    )
