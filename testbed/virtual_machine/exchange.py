"""Files exchanged with a virtual machine: a job goes in; output, exit code and runs come out."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL

from linux.files.user_files import give

RESULTS_MIB = 1024


@dataclass(frozen=True)
class Exchange:
    """The files of one execution, in a folder of its own."""

    folder: Path

    @property
    def results(self) -> Path:
        """Memory of the guest, as a file, to which it writes a tar archive."""
        return self.folder / "results"

    @property
    def stdout(self) -> Path:
        """Standard output of the job."""
        return self.folder / "stdout"

    @property
    def stderr(self) -> Path:
        """Standard error of the job, and the kernel's last words."""
        return self.folder / "stderr"

    @property
    def handed(self) -> dict[str, Path]:
        """The files that the guest gets, by name."""
        return {file.name: file for file in sorted((self.folder / "handed").iterdir())}

    def put(self, job: str, files: Mapping[str, str]) -> None:
        """Write the guest's input: the shell script `job`, and files with these texts."""
        (self.folder / "handed").mkdir()
        for name, text in {"job": job, **files}.items():
            (self.folder / "handed" / name).write_text(text)
        for stream in (self.stdout, self.stderr):
            stream.touch()
        with self.results.open("wb") as results:
            results.truncate(RESULTS_MIB * 2**20)

    def take(self, back: Path) -> int | None:
        """Extract the runs into the folder `back`; return the exit code, None without a result."""
        extract = ["tar", "--extract", "--warning=no-timestamp", "--file", str(self.results)]
        code = [*extract, "--directory", str(self.folder), "exit-code"]
        if subprocess.run(code, stderr=DEVNULL).returncode != 0:
            return None
        subprocess.run([*extract, "--no-same-owner", "--directory", str(back), "runs"], check=True)
        give(back / "runs")
        return int((self.folder / "exit-code").read_text())
