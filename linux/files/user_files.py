"""Files of users: read within bounds, written whole, and owned by whoever called `sudo`."""

import csv
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import IO, BinaryIO

# chown(2) takes this id for "unchanged"; real ids are below it.
NO_ID = 2**32 - 1
WORK_PREFIX = "railbed-unfinished-"


class Unreadable(Exception):
    """A file that is missing, not regular, too large, or not text; the message says which."""


def read_text(place: Path, most_bytes: int) -> str:
    """Return the UTF-8 text of a regular file; raise `Unreadable` for any other file."""
    try:
        return read_bytes(place, most_bytes).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise Unreadable(f"is not UTF-8 text: {error.reason} in line {line}") from None


def read_bytes(place: Path, most_bytes: int) -> bytes:
    """Return the content of a regular file; raise `Unreadable` for any other file.

    The open file itself is asked for its kind and size, so a FIFO, a device or a file that is too
    large is never read, and a small one takes little memory. Of a file that grows meanwhile, what
    it had when opened is read.
    """
    with _opened(place) as (file, size_bytes):
        if size_bytes > most_bytes:
            raise Unreadable(f"is larger than {most_bytes / 2**20:g} MiB")
        return file.read(size_bytes)


def require_regular(place: Path) -> None:
    """Raise `Unreadable` unless a file is regular; a FIFO or a device is not waited for."""
    with _opened(place):
        pass


@contextmanager
def _opened(place: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Yield an open regular file and its size; any error until the end is `Unreadable`."""
    try:
        with open(place, "rb", opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise Unreadable("is not a regular file")
            yield file, status.st_size
    except FileNotFoundError:
        raise Unreadable("not found") from None
    except IsADirectoryError:
        raise Unreadable("is a folder, not a file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Unreadable(f"cannot be read: {reason}") from error


def _without_waiting(place: str, flags: int) -> int:
    """Open a file; a FIFO without a writer opens at once (open(2), O_NONBLOCK)."""
    return os.open(place, flags | os.O_NONBLOCK | os.O_NOCTTY)


def digest_of(files: Mapping[Path, Path]) -> str:
    """Return a digest, 16 hexadecimal digits, of files' names and contents; empty without files."""
    whole = hashlib.sha256()
    for name, file in sorted(files.items()):
        with file.open("rb") as content:
            whole.update(f"{name}\0".encode() + hashlib.file_digest(content, "sha256").digest())
    return whole.hexdigest()[:16] if files else ""


def require_replaceable(place: Path) -> None:
    """Raise `OSError` for the path of a folder, device or FIFO, or in one of the kernel's folders.

    /dev/stdout, for example, is a link, which a written file would replace.
    """
    folder = Path(os.path.realpath(place.parent))
    if folder == Path("/dev") or any(folder.is_relative_to(one) for one in ("/proc", "/sys")):
        raise OSError(errno.EINVAL, f"{folder} holds no regular files")
    if place.exists() and not place.is_file():
        raise OSError(errno.EINVAL, f"{place} is not a regular file")


def write_text(place: Path, text: str) -> None:
    """Write a text file as `write_bytes` does."""
    write_bytes(place, text.encode())


def write_bytes(place: Path, content: bytes) -> None:
    """Write a file atomically: a draft reaches the disk before it gets its name, or is removed.

    A file or link at the draft's path is removed, and a link at the file's path is replaced: no
    link is followed. `OSError` is raised for anything else than a regular file at the path.
    """
    require_replaceable(place)
    draft = place.with_name(f"{place.name}.draft")
    try:
        with cleared(draft).open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(place)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    # The name reaches the disk; the folder may be a link to one.
    _sync(place.parent, os.O_DIRECTORY)


def cleared(place: Path) -> Path:
    """Remove what is in a file's place, and return it, to be opened with mode "x".

    That opens a new file and no link (open(2), O_EXCL): root writes into folders of users.
    """
    place.unlink(missing_ok=True)
    return place


def write_table(place: Path, columns: Iterable[str], rows: Iterable[Iterable[object]] = ()) -> None:
    """Write a CSV file in place of what is there: the headings of its columns, and rows."""
    with cleared(place).open("x", newline="") as file:
        table = csv.writer(file)
        table.writerow(columns)
        table.writerows(rows)


def unfollowed(place: str, flags: int) -> int:
    """Open a file, for `open()` with mode "a"; a link in its place is an error."""
    return os.open(place, flags | os.O_NOFOLLOW, 0o666)


def sync(folder: Path) -> None:
    """Let all files in a folder and below reach the disk; links are not followed."""
    for parent, _, files, descriptor in os.fwalk(folder):
        for place in (Path(parent, name) for name in files):
            if not place.is_symlink():
                sync_file(place)
        os.fsync(descriptor)


def sync_file(place: Path) -> None:
    """Let a file reach the disk (fsync(2)); a link is not followed."""
    _sync(place, os.O_NOFOLLOW | os.O_NONBLOCK)


def _sync(place: Path, flags: int) -> None:
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents, which belong to the user."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(exist_ok=True)
        give(place)


def user() -> tuple[int, int] | None:
    """User and group that called `sudo` (sudo(8), SUDO_UID, SUDO_GID); None without `sudo`."""
    with suppress(KeyError, ValueError):
        owner = int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"])
        if os.geteuid() == 0 and all(0 <= number < NO_ID for number in owner):
            return owner
    return None


def give(place: Path) -> None:
    """Give a file, or a folder and all in it, to the user who called `sudo`.

    Links are not followed.
    """
    if (owner := user()) is None:
        return
    os.chown(place, *owner, follow_symlinks=False)
    if place.is_symlink() or not place.is_dir():
        return
    for _, folders, files, descriptor in os.fwalk(place):
        for name in (*folders, *files):
            os.chown(name, *owner, dir_fd=descriptor, follow_symlinks=False)


@contextmanager
def work_folder(parent: Path | None = None) -> Iterator[Path]:
    """Yield a folder that is removed afterwards; first remove the folders of killed processes.

    Without `parent` it is in the system's folder for temporary files.
    """
    above = parent or Path(gettempdir())
    remove_unfinished(above)
    folder, lock = _locked_folder(above)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


@contextmanager
def complete_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder, which gets its name when it is filled and on the disk.

    It replaces a folder of that name. Whoever is killed before leaves none that is incomplete.
    """
    with work_folder(target.parent) as unfinished:
        yield unfinished
        sync(unfinished)
        if target.exists():
            remove_folder(target)
        unfinished.rename(target)
        _sync(target.parent, os.O_DIRECTORY)


def remove_folder(folder: Path) -> None:
    """Remove a folder, which is whole until it has lost its name; a full disk is no obstacle."""
    nameless = folder.with_name(f"{WORK_PREFIX}{folder.name}")
    shutil.rmtree(nameless, ignore_errors=True)  # of a killed process
    folder.rename(nameless)
    shutil.rmtree(nameless, ignore_errors=True)


def _locked_folder(above: Path) -> tuple[Path, int]:
    """Make a work folder and lock it; another one if a cleanup removes it before it is locked."""
    while True:
        folder = Path(mkdtemp(dir=above, prefix=WORK_PREFIX))
        if (lock := _lock(folder)) is not None:
            if folder.exists():
                return folder, lock
            os.close(lock)


def remove_unfinished(above: Path) -> int:
    """Remove the work folders of processes that have ended; return how many there were.

    Each is locked until it is gone, so that the process that has just made one notices.
    """
    removed = 0
    for folder in above.glob(f"{WORK_PREFIX}*"):
        if (lock := _lock(folder)) is not None:
            shutil.rmtree(folder, ignore_errors=True)
            removed += not folder.exists()
            os.close(lock)
    return removed


def is_locked(place: Path, flags: int, *, unknown: bool) -> bool:
    """Whether a process holds the lock of a file (flock(2)); `unknown` if it cannot be opened."""
    try:
        lock = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags)
    except OSError:
        return unknown
    try:
        flock(lock, LOCK_SH | LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def _lock(folder: Path) -> int | None:
    """Lock a folder (flock(2)) until the returned descriptor or this process ends.

    Returns `None` if another process holds the lock, or this one may not take it.
    """
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    if take_lock(lock):
        return lock
    os.close(lock)
    return None


def take_lock(lock: int | IO[str]) -> bool:
    """Lock an open file (flock(2)) and return true, unless another process holds the lock."""
    try:
        flock(lock, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    return True
