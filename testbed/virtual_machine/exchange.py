"""What goes into a virtual machine, and what comes back: a tree and a job, exit code and runs."""

import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL
from typing import IO

RESULTS_BYTES = 2**30
# What a machine with udev loads by itself.
MODULES = ("tun", "openvswitch", "sch_htb", "cls_u32", "veth", "bridge")
# git ignores it, and the guest needs it.
ENVIRONMENT = ".venv"


@dataclass(frozen=True)
class Exchange:
    """The files of one execution, in a folder of its own."""

    folder: Path

    @property
    def initrd(self) -> Path:
        """What the kernel unpacks into memory: the system, and the tree."""
        return self.folder / "initrd"

    @property
    def results(self) -> Path:
        """A disk that the guest writes a tar file to."""
        return self.folder / "results"

    @property
    def handed(self) -> dict[str, Path]:
        """Small files by the names under which the guest reads them."""
        return {name: self.folder / name for name in ("job", "place")}

    def put(self, system: Path, tree: Path, command: Sequence[str]) -> None:
        """Write all that the guest needs to execute a command in a copy of `tree`."""
        with self.initrd.open("wb") as initrd:
            subprocess.run(["cat", str(system)], stdout=initrd, check=True)
            pack(tree, initrd)
        self.handed["place"].write_text(str(tree))
        self.handed["job"].write_text(job(command))
        with self.results.open("wb") as results:
            results.truncate(RESULTS_BYTES)

    def take(self, back: Path) -> int | None:
        """Bring the runs to the folder `back`; return the exit code, or none without a result."""
        extract = ["tar", "--extract", "--warning=no-timestamp", "--file", str(self.results)]
        code = [*extract, "--directory", str(self.folder), "exit-code"]
        if subprocess.run(code, stderr=DEVNULL).returncode != 0:
            return None
        subprocess.run([*extract, "--directory", str(back), "runs"], check=True)
        return int((self.folder / "exit-code").read_text())


def pack(tree: Path, archive: IO[bytes]) -> None:
    """Append a tree, at its own place, as a cpio archive, which the kernel takes one after another.

    Of a tree it is what git knows or does not ignore, and the Python environment.
    """
    folders = [str(folder) for folder in reversed([tree, *tree.parents])]
    environment = subprocess.run(
        ["find", str(tree / ENVIRONMENT), "-print0"], capture_output=True, text=True, check=True
    )
    names = [*folders[1:], *environment.stdout.split("\0")[:-1], *_with_folders(tree)]
    relative = "\0".join(name.removeprefix("/") for name in names)
    copy = ["cpio", "--null", "--create", "--format=newc", "--quiet"]
    subprocess.run(copy, cwd="/", input=relative.encode(), stdout=archive, check=True)


def _with_folders(tree: Path) -> Iterator[str]:
    """Files that git knows or does not ignore, and the folders that they are in, folders first."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=tree, capture_output=True, text=True, check=True).stdout
    files = [tree / name for name in names.split("\0") if name and (tree / name).exists()]
    folders = {folder for file in files for folder in file.parents if folder.is_relative_to(tree)}
    yield from map(str, sorted(folders - {tree}))
    yield from map(str, files)


def job(command: Sequence[str]) -> str:
    """The shell script that the guest executes in the tree."""
    return f"modprobe -a {' '.join(MODULES)}\nexport RAILBED_NO_DOCKER=1\n{shlex.join(command)}\n"
