"""Measured costs of this machine, in a file that every user may read."""

import json
import os
import platform
import shutil
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter

from linux.files.user_files import write_text
from linux.machine.processor import model_name
from linux.processes.lifetime import first_line
from model.prediction.machine import Machine, MachineKey
from model.sweep import CLOCK_VARIABLE, VIRTUAL
from testbed.nodes.datapath import default_datapath

PLACE = Path("/var/lib/railbed/machine.json")
# Environment variable with another path, for tests.
VARIABLE = "RAILBED_MACHINE"
# Costs of the virtual machine of the virtual clock, measured there by `railbed doctor --measure`.
VIRTUAL_PLACE = Path(__file__).parents[2] / "testbed" / "virtual_machine" / "machine.json"
SCHEMA = "railbed.machine/2"


def place() -> Path:
    """Path of the file with the measured costs."""
    return Path(os.environ.get(VARIABLE, PLACE))


def this_machine() -> MachineKey:
    """Key of this machine; a measurement with another key is not valid for it."""
    # Open vSwitch is found also if its folder is not in PATH, as for users without root.
    search = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin"
    switch = shutil.which("ovs-vswitchd", path=search) or "ovs-vswitchd"
    return MachineKey(
        kernel=platform.release(),
        cpu=model_name(),
        cores=os.cpu_count() or 1,
        open_vswitch=first_line(switch, "--version"),
        datapath=default_datapath().value,
    )


def virtual_machine() -> Machine:
    """The costs of the virtual clock's machine: the same everywhere, measured once."""
    return TypeAdapter(Machine).validate_json(VIRTUAL_PLACE.read_text())


def in_virtual_clock() -> bool:
    """Whether this program runs inside of the virtual clock's machine."""
    return os.environ.get(CLOCK_VARIABLE) == VIRTUAL


def known_machine() -> Machine | None:
    """Return this machine's measured costs; None if never measured, or if it has changed since."""
    if in_virtual_clock():
        return virtual_machine()
    try:
        stored = json.loads(place().read_text())
        machine = TypeAdapter(Machine).validate_python(stored)
        return machine if stored["schema"] == SCHEMA and machine.key == this_machine() else None
    except (OSError, ValueError, KeyError):
        return None


def machine_by(clock: str) -> Machine | None:
    """Return the costs of the machine that executes by a clock; None if they are not known."""
    return virtual_machine() if clock == VIRTUAL else known_machine()


def keep(machine: Machine) -> Path:
    """Write the file atomically; return its path."""
    target = place()
    with suppress(FileExistsError):
        target.parent.mkdir(parents=True)
        target.parent.chmod(0o755)  # whatever the umask
    write_text(target, json.dumps({"schema": SCHEMA, **asdict(machine)}, indent=1) + "\n")
    target.chmod(0o644)
    return target
