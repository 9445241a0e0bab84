"""The cache: images of the virtual machine, each named by a digest of its sources, and results."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fcntl import LOCK_SH, flock
from pathlib import Path

from linux.files.user_files import (
    complete_folder,
    give,
    make_folder,
    remove_folder,
    take_lock,
    unfollowed,
    work_folder,
)
from linux.processes.lifetime import wait_for
from model.errors import NotReady

FOLDER = Path("/var/cache/railbed")
# Names another cache folder: for tests, and for users without room in /var.
VARIABLE = "RAILBED_CACHE"
PARTS = ("system", "proxies", "program")
RESULTS = "results"
# Keys of results are hexadecimal; other processes' unfinished folders have other names.
KEYS = "[0-9a-f]*"
LOCK = "lock"
# Versions of a part that stay, such as those of several branches.
VERSIONS = 3
# Parts that this process uses.
_held: set[Path] = set()
# A process holds a lock for minutes at most; several may wait before this one.
LOCK_DEADLINE_S = 1800.0


def cache_folder() -> Path:
    """The cache: of the machine for root, else the user's (XDG Base Directory Specification).

    Raises `NotReady` for an account without a home.
    """
    named = os.environ.get(VARIABLE) or (FOLDER if os.geteuid() == 0 else "")
    if not named:
        own = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(own):  # the specification: ignore it
            own = os.path.expanduser("~/.cache")
        if own.startswith("~"):  # as it was
            raise NotReady(f"cache: no home folder; name a folder: `export {VARIABLE}=FOLDER`")
        named = Path(own, "railbed")
    # The build of an image changes its folder: a relative path would mean another place there.
    return Path(named).absolute()


def make_cache(folder: Path) -> None:
    """Make a folder of the cache; it belongs to the user, unless the cache is the machine's.

    Raises `NotReady` if it cannot be written.
    """
    with _writing(folder):
        if cache_folder() == FOLDER:
            folder.mkdir(parents=True, exist_ok=True)
        else:
            make_folder(folder)
        with work_folder(folder):
            pass


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Raise `NotReady` if a folder of the cache cannot be written."""
    try:
        yield
    except OSError as error:
        raise NotReady(
            f"cache {folder}: cannot be written: {error.strerror}; name another folder: "
            f"`export {VARIABLE}=FOLDER`"
        ) from None


def hand_over(part: Path) -> None:
    """Give a part of the cache to the user, unless the cache is the machine's."""
    if cache_folder() != FOLDER:
        give(part)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder of the cache; the lock belongs to the user, as the folder does.

    Prints a message while another process holds it; raises `EmulationError` at the deadline.
    """
    place = folder / LOCK
    with open(place, "a", opener=unfollowed) as lock:
        if not take_lock(lock):
            print(f"railbed: waiting for another Railbed, which holds {place}", file=sys.stderr)
            what = f"release of the lock {place} by another Railbed"
            wait_for(lambda: take_lock(lock), what, LOCK_DEADLINE_S)
        hand_over(place)
        yield


def cached_part(part: str, version: str, make: Callable[[Path], None]) -> Path:
    """Return the folder of a part, made if missing; nobody removes it before this process ends.

    `make` fills a folder, which gets its name when it is complete; a failure leaves nothing. Other
    versions are removed, except the last ones used and those that running processes hold.
    """
    cache = cache_folder()
    make_cache(cache)
    target = cache / f"{part}-{version}"
    with locked_folder(cache):
        if not target.exists():
            with complete_folder(target) as unfinished:
                make(unfinished)
        os.utime(target)  # used last
        _hold(target)
        hand_over(target)  # with its lock
        for earlier in by_last_use(cache.glob(f"{part}-*"))[:-VERSIONS]:
            if not is_held(earlier / LOCK):
                remove_folder(earlier)
    return target


def _hold(target: Path) -> None:
    """Keep a part from removal until this process ends, however it ends; once is enough."""
    if target not in _held:
        _held.add(target)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        flock(unfollowed(str(target / LOCK), flags), LOCK_SH)


def by_last_use(places: Iterable[Path]) -> list[Path]:
    """Folders of the cache; the one used last is the last."""
    return sorted(places, key=lambda place: place.stat().st_mtime_ns)


def clear() -> int:
    """Remove all results, and images that no process uses or makes; return their bytes.

    Raises `NotReady` if the cache cannot be written.
    """
    cache = cache_folder()
    images = [f"{part}-*" for part in PARTS]
    with _writing(cache):
        return _remove_unused(cache, images) + _remove_unused(cache / RESULTS, [KEYS])


def _remove_unused(folder: Path, patterns: Iterable[str]) -> int:
    """Remove what no process holds; nobody takes it meanwhile, as the folder is locked."""
    if not folder.exists():
        return 0
    removed = 0
    with locked_folder(folder):
        for place in [place for pattern in patterns for place in folder.glob(pattern)]:
            if not is_held(place / LOCK):
                removed += size_of(place)
                remove_folder(place)
    return removed


def size_of(folder: Path) -> int:
    """Bytes of all files of a folder; 0 if it is missing."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def is_held(place: Path) -> bool:
    """Whether a process holds the lock, alone or with others."""
    if not place.exists():
        return False
    with place.open("r+") as lock:
        return not take_lock(lock)
