"""What goes into a virtual machine, and what comes back: a tree and a job, exit code and runs."""

import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL
from typing import IO

RESULTS_BYTES = 2**30
# What a machine with udev loads by itself.
MODULES = ("tun", "openvswitch", "sch_htb", "cls_u32", "veth", "bridge")
# The Python environment goes along.
NOT_PACKED = (".git", ".tools", "runs", ".*_cache", ".hypothesis")


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

    def put(
        self, system: Path, tree: Path, command: Sequence[str], proxy_root: Path | None = None
    ) -> None:
        """Write all that the guest needs to execute a command in a copy of `tree`.

        With the root of the proxies' image, a Docker Engine runs in the guest.
        """
        with self.initrd.open("wb") as initrd:
            subprocess.run(["cat", str(system)], stdout=initrd, check=True)
            pack(tree, initrd)
            if proxy_root is not None:
                pack(proxy_root.parent, initrd)
        self.handed["place"].write_text(str(tree))
        self.handed["job"].write_text(job(command, proxy_root))
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
    """Append a tree, at its own place, as a cpio archive: the kernel takes one after another."""
    above = "\0".join(str(folder) for folder in reversed(tree.parents) if folder != Path("/"))
    names = f"{above}\0{_names_in(tree)}".split("\0")
    relative = "\0".join(name.removeprefix("/") for name in names if name)
    copy = ["cpio", "--null", "--create", "--format=newc", "--quiet"]
    subprocess.run(copy, cwd="/", input=relative.encode(), stdout=archive, check=True)


def _names_in(tree: Path) -> str:
    """The files and folders of a tree, the folder of each before it, with a NUL behind each."""
    skipped = [word for name in NOT_PACKED for word in ("-o", "-name", name)]
    find = ["find", str(tree), "(", *skipped[1:], ")", "-prune", "-o", "-print0"]
    return subprocess.run(find, capture_output=True, text=True, check=True).stdout


def job(command: Sequence[str], proxy_root: Path | None = None) -> str:
    """The shell script that the guest executes in the tree."""
    docker = (
        "export RAILBED_NO_DOCKER=1"
        if proxy_root is None
        else f"RAILBED_PROXY_ROOT={shlex.quote(str(proxy_root))} testbed/provision.sh"
    )
    return f"modprobe -a {' '.join(MODULES)}\n{docker}\n{shlex.join(command)}\n"
