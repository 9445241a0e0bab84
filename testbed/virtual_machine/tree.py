"""Execute a command in a copy of a folder, on a virtual machine with Debian's own kernel."""

from collections.abc import Sequence
from pathlib import Path

from testbed.virtual_machine.guest import Guest
from testbed.virtual_machine.image import image, proxy_root
from testbed.virtual_machine.initrd import write_initrd
from testbed.virtual_machine.job import command_job
from testbed.virtual_machine.work_folder import work_folder


def execute_in_copy(
    tree: Path, command: Sequence[str], back: Path, *, memory_mib: int = 4096, docker: bool = False
) -> int:
    """Execute a command in a copy of Railbed's folder `tree`; return its exit code.

    The copy has the same path inside; its folder `runs` is extracted into `back` afterwards. With
    `docker` a Docker Engine runs inside.
    """
    system = image()
    proxies = proxy_root() if docker else None
    with work_folder() as folder:
        initrd = folder / "initrd"
        if proxies is None:
            write_initrd(initrd, [system.archive], [tree])
        else:
            write_initrd(initrd, [system.archive, system.engine], [tree, proxies.parent])
        guest = Guest(system.kernel, initrd, tree, memory_mib)
        exit_code, _ = guest.execute(command_job(command, proxies), {}, back)
        return exit_code
