"""Jobs: shell scripts that the virtual machine executes in a copy of Railbed's folder."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from testbed.virtual_machine.guest import Guest
from testbed.virtual_machine.image import Suite, append, image, proxy_root, write_initrd
from testbed.virtual_machine.work_folder import work_folder

# Kernel modules that a machine with udev loads by itself.
MODULES = ("tun", "openvswitch", "sch_htb", "cls_u32", "veth", "bridge")
# Tells the program inside that its clock is virtual.
CLOCK_VARIABLE = "RAILBED_CLOCK"
# Open vSwitch does not count the processors before the machine is up for ten seconds: a daemon that
# starts earlier has no thread for packets that its kernel part does not know (count_total_cores in
# lib/ovs-thread.c of Open vSwitch 3.1). Idle time costs nothing.
UP_FOR_A_WHILE = "sleep 10"
# The image's environment stands where the program looks for its own.
ENVIRONMENT = "[ -e .venv ] || ln -s /railbed/.venv ."
LOAD_MODULES = f"modprobe -a {' '.join(MODULES)}"


def command_job(command: Sequence[str], proxy_root: Path | None = None) -> str:
    """A job that executes a command; with the proxies' root, beside a Docker Engine."""
    docker = (
        "export RAILBED_NO_DOCKER=1"
        if proxy_root is None
        else f"RAILBED_PROXY_ROOT={shlex.quote(str(proxy_root))} testbed/provision.sh"
    )
    return f"{LOAD_MODULES}\n{UP_FOR_A_WHILE}\n{ENVIRONMENT}\n{docker}\n{shlex.join(command)}\n"


def program_job(arguments: Sequence[str], seed: int) -> str:
    """A job that executes Railbed with arguments; `$RAILBED_HANDED` may be a part of one.

    `seed` is that of the machine's random numbers. Addresses and hashes are the same in every
    execution, so that memory is used in the same way.
    """
    words = " ".join(f'"{argument}"' for argument in arguments)
    return (
        f"{LOAD_MODULES}\n{UP_FOR_A_WHILE}\n"
        "echo 0 >/proc/sys/kernel/randomize_va_space\n"
        f"export RAILBED_NO_DOCKER=1 PYTHONHASHSEED=0 PYTHONPATH=$PWD {CLOCK_VARIABLE}=virtual\n"
        f"python3 testbed/virtual_machine/seed.py {seed}\n"
        f".venv/bin/python -P -m commands {words}\n"
    )


def execute_in_copy(
    tree: Path,
    command: Sequence[str],
    back: Path,
    *,
    suite: Suite = Suite.BOOKWORM,
    memory_mib: int = 4096,
    docker: bool = False,
) -> int:
    """Execute a command in a copy of Railbed's folder `tree`; return its exit code.

    The copy has the same path inside, and the Python environment of Debian's `suite`; its folder
    `runs` is extracted into `back` afterwards. With `docker` a Docker Engine runs inside.
    """
    system = image(suite)
    proxies = proxy_root() if docker else None
    with work_folder() as folder:
        initrd = folder / "initrd"
        if proxies is None:
            write_initrd(initrd, [system.archive], [tree])
        else:
            write_initrd(initrd, [system.archive, system.engine], [tree, proxies.parent])
        with initrd.open("ab") as archive:
            append(archive, system.python, system.environment)
        guest = Guest(system.kernel, initrd, tree, memory_mib)
        exit_code, _ = guest.execute(command_job(command, proxies), {}, back)
        return exit_code
