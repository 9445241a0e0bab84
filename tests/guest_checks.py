"""The checks in the virtual machine, executed beside the other tests: they take minutes.

The machine has what the tests leave of the cores (SCHED_IDLE), and its own clock: nobody notices
the other, but the whole is over earlier.
"""

import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from linux.processes import dies_with_us

ROOT = Path(__file__).parents[1]
SCRIPT = "tests/system/virtual_machine_checks.sh"
DEADLINE_S = 1800


@dataclass
class GuestChecks:
    """One execution of the script in a virtual machine; starts when it is made."""

    _folder: TemporaryDirectory[str] = field(default_factory=lambda: TemporaryDirectory())

    def __post_init__(self) -> None:
        """Start the machine."""
        vm = dies_with_us(["chrt", "--idle", "0", str(ROOT / "railbed"), "vm", "--", SCRIPT])
        with (self.runs.parent / "log").open("w") as log:
            self._machine = subprocess.Popen(
                vm, cwd=self._folder.name, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @property
    def runs(self) -> Path:
        """Where what the script left in `runs` comes to."""
        return Path(self._folder.name, "runs")

    def wait(self) -> Path:
        """The folder with what each check has said, as soon as all are done."""
        exit_code = self._machine.wait(DEADLINE_S)
        assert exit_code == 0, (self.runs.parent / "log").read_text()
        return self.runs / "checks"

    def end(self) -> None:
        """End the machine, done or not, and remove what it left."""
        self._machine.send_signal(signal.SIGINT)
        self._machine.wait()
        self._folder.cleanup()
