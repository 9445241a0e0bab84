"""Run the checks in the virtual machine beside the other tests: they take minutes.

The virtual machine gets only the CPU time that the tests leave (SCHED_IDLE) and has its own clock:
neither disturbs the other, and both together end earlier.
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
    """One execution of the script in a virtual machine; starts when the object is created."""

    _folder: TemporaryDirectory[str] = field(default_factory=lambda: TemporaryDirectory())

    def __post_init__(self) -> None:
        """Start the virtual machine."""
        vm = dies_with_us(["chrt", "--idle", "0", str(ROOT / "railbed"), "vm", "--", SCRIPT])
        with (self.runs.parent / "log").open("w") as log:
            self._machine = subprocess.Popen(
                vm, cwd=self._folder.name, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @property
    def runs(self) -> Path:
        """Folder that receives the contents of the script's `runs` folder."""
        return Path(self._folder.name, "runs")

    def wait(self) -> Path:
        """Wait until all checks are done; return the folder with the output of each."""
        exit_code = self._machine.wait(DEADLINE_S)
        assert exit_code == 0, (self.runs.parent / "log").read_text()
        return self.runs / "checks"

    def end(self) -> None:
        """End the virtual machine, done or not, and remove its folder."""
        self._machine.send_signal(signal.SIGINT)
        self._machine.wait()
        self._folder.cleanup()
