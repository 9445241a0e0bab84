"""Files exchanged with a virtual machine: in go a tree and a job, out come exit code and runs."""

import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL
from typing import IO

RESULTS_BYTES = 2**30
# Kernel modules that a machine with udev loads by itself.
MODULES = ("tun", "openvswitch", "sch_htb", "cls_u32", "veth", "bridge")
# Left out when a tree is packed; the Python environment is packed.
NOT_PACKED = (".git", ".tools", "runs", ".*_cache", ".hypothesis")


@dataclass(frozen=True)
class Exchange:
    """The files of one execution, in a folder of its own."""

    folder: Path

    @property
    def initrd(self) -> Path:
        """The initrd, which the kernel unpacks into memory: the system, and the tree."""
        return self.folder / "initrd"

    @property
    def results(self) -> Path:
        """A disk image to which the guest writes a tar file."""
        return self.folder / "results"

    @property
    def handed(self) -> dict[str, Path]:
        """Small files by the names under which the guest reads them."""
        return {name: self.folder / name for name in ("job", "place")}

    def put(
        self, system: Path, tree: Path, command: Sequence[str], proxy_root: Path | None = None
    ) -> None:
        """Write all files that the guest needs to execute a command in a copy of `tree`.

        Given `proxy_root`, the root of the proxies' image, the guest runs a Docker Engine.
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
        """Extract the runs into the folder `back`; return the exit code, None without a result."""
        extract = ["tar", "--extract", "--warning=no-timestamp", "--file", str(self.results)]
        code = [*extract, "--directory", str(self.folder), "exit-code"]
        if subprocess.run(code, stderr=DEVNULL).returncode != 0:
            return None
        subprocess.run([*extract, "--directory", str(back), "runs"], check=True)
        return int((self.folder / "exit-code").read_text())


def pack(tree: Path, archive: IO[bytes]) -> None:
    """Append a tree, under its own path, as a cpio archive; the kernel accepts several in a row."""
    above = "\0".join(str(folder) for folder in reversed(tree.parents) if folder != Path("/"))
    names = f"{above}\0{_names_in(tree)}".split("\0")
    relative = "\0".join(name.removeprefix("/") for name in names if name)
    copy = ["cpio", "--null", "--create", "--format=newc", "--quiet"]
    subprocess.run(copy, cwd="/", input=relative.encode(), stdout=archive, check=True)


def _names_in(tree: Path) -> str:
    """Paths of a tree's files and folders, each folder before its contents, NUL-terminated."""
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
