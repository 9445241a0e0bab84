"""The initrd, which the guest's kernel unpacks into memory: a system, then a copy of a tree."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

# Left out of a packed tree, beside its own folder `runs`.
NOT_PACKED = (".git", ".tools", ".*_cache", ".hypothesis")


def write_initrd(target: Path, system: Sequence[Path], trees: Sequence[Path]) -> None:
    """Write an initrd of a system's archives and of trees, each at its own path.

    A tree's Python environment is left out: it is for the host's Python.
    """
    with target.open("wb") as initrd:
        for part in system:
            with part.open("rb") as archive:
                shutil.copyfileobj(archive, initrd, 2**24)
        for tree in trees:
            append(initrd, Path("/"), tree, without=(tree / ".venv",))


def append(archive: IO[bytes], root: Path, tree: Path, without: Sequence[Path] = ()) -> None:
    """Append a tree below `root` as a cpio archive; the kernel accepts several in a row.

    The archive depends on the files alone, not on their inodes, owners and order on the disk.
    """
    above = [folder for folder in reversed(tree.parents) if folder.is_relative_to(root)]
    names = [str(folder) for folder in (*above, tree) if folder != root]
    names += _names_in(tree, (tree / "runs", *without))
    relative = "\0".join(str(Path(name).relative_to(root)) for name in names)
    copy = ["cpio", "--null", "--create", "--format=newc", "--quiet"]
    copy += ["--reproducible", "--owner=+0:+0"]
    subprocess.run(copy, cwd=root, input=relative.encode(), stdout=archive, check=True)


def _names_in(tree: Path, without: Sequence[Path]) -> list[str]:
    """Paths of a tree's files and folders, each folder before its contents."""
    skipped = [("-name", name) for name in NOT_PACKED]
    skipped += [("-path", str(place)) for place in without]
    choice = [word for test in skipped for word in (*test, "-o")][:-1]
    find = ["find", str(tree), "-mindepth", "1", "(", *choice, ")", "-prune", "-o", "-print0"]
    found = subprocess.run(find, capture_output=True, text=True, check=True).stdout
    return sorted(name for name in found.split("\0") if name)
