"""The initrd, which the guest's kernel unpacks into memory: a system, then a copy of a tree."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

# Left out of a packed tree, beside its own folder `runs`; the Python environment is packed.
NOT_PACKED = (".git", ".tools", ".*_cache", ".hypothesis")


def write_initrd(target: Path, system: Sequence[Path], trees: Sequence[Path]) -> None:
    """Write an initrd of a system's archives and of trees, each at its own path."""
    with target.open("wb") as initrd:
        for part in system:
            with part.open("rb") as archive:
                shutil.copyfileobj(archive, initrd, 2**24)
        for tree in trees:
            append(initrd, Path("/"), tree)


def append(archive: IO[bytes], root: Path, tree: Path) -> None:
    """Append a tree below `root` as a cpio archive; the kernel accepts several in a row.

    The archive depends on the files alone, not on their inodes, owners and order on the disk.
    """
    above = [folder for folder in reversed(tree.parents) if folder.is_relative_to(root)]
    names = [str(folder) for folder in above if folder != root] + _names_in(tree)
    relative = "\0".join(str(Path(name).relative_to(root)) for name in names)
    copy = ["cpio", "--null", "--create", "--format=newc", "--quiet"]
    copy += ["--reproducible", "--owner=+0:+0"]
    subprocess.run(copy, cwd=root, input=relative.encode(), stdout=archive, check=True)


def _names_in(tree: Path) -> list[str]:
    """Paths of a tree's files and folders, each folder before its contents."""
    skipped = [word for name in NOT_PACKED for word in ("-name", name, "-o")]
    own_runs = ["-path", str(tree / "runs")]
    find = ["find", str(tree), "(", *skipped, *own_runs, ")", "-prune", "-o", "-print0"]
    found = subprocess.run(find, capture_output=True, text=True, check=True).stdout
    return sorted(name for name in found.split("\0") if name)
