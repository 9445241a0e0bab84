"""The virtual machine's image: stock Debian with its own kernel, built once and cached; its initrd.

Each part is named by a digest of its sources, and rebuilt when they change. The guest's kernel
unpacks the initrd into memory: a system, then a copy of a tree.

The initrd of the virtual clock has Debian, and Railbed with its Python environment. It is the same,
byte for byte, wherever it is made from the same packages and the same program.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import IO

from linux.files.program_files import ROOMS, ROOT, program_version
from linux.files.user_files import digest_of
from linux.processes.lifetime import exit_code_of
from model.errors import NotReady
from testbed.virtual_machine.cache import cached_part

HERE = Path(__file__).parent
BUILDER = HERE / "image.sh"
SOURCES = (
    BUILDER,
    HERE / "mirrors.sh",
    HERE.parent / "provision.sh",
    ROOT / "requirements.lock",
    ROOT / "build-constraints.txt",
)
ARCHITECTURE = "x86_64"
TOOLS = ("qemu-system-x86_64", "cpio")
# Left out of a packed tree, beside its own folder `runs`.
NOT_PACKED = (".git", ".tools", ".*_cache", ".hypothesis")
# The program's folder inside. It is the same on every machine, as paths influence the execution.
INSIDE = Path("/railbed")
ENVIRONMENT = Path(".venv")
# Packages that no run needs: for tests and type checks, figures, reports, and queries of runs.
NOT_NEEDED = (
    *("__pycache__", "mypy", "mypyc", "*__mypyc*", "hypothesis", "_pytest", "pip"),
    *("matplotlib*", "mpl_toolkits", "PIL", "pillow*", "fontTools", "fonttools*", "contourpy*"),
    *("duckdb*", "_duckdb*", "adbc_driver_duckdb", "jinja2*", "markupsafe*"),
    *("playwright*", "pyee*"),
)
EPOCH_S = 0


class Suite(StrEnum):
    """Debian's releases that the machine may have.

    The virtual clock has Debian 12, whatever the host has: the golden measurements and the costs of
    the machine are of its kernel and of its Python.
    """

    BOOKWORM = "bookworm"
    TRIXIE = "trixie"


class Image:
    """The files that a virtual machine starts from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Debian's kernel, and the root file system as a cpio archive that it unpacks into memory.
        self.kernel = folder / "kernel"
        self.archive = folder / "system.cpio"
        # The root folder of its Python, with the locked environment: `/railbed/.venv` inside.
        self.python = folder / "python"
        self.environment = self.python / "railbed" / ".venv"
        # The programs of a Docker Engine, as another such archive.
        self.engine = folder / "docker.cpio"

    def compile(self, folder: Path) -> None:
        """Compile all modules in a folder for the image's own Python, which the host may not have.

        It runs here by its own libraries (ld.so(8)). Files' dates and this process's environment do
        not count.
        """
        root = self.python / "usr"
        libraries = root / "lib" / f"{ARCHITECTURE}-linux-gnu"
        python: list[str | Path] = [libraries / "ld-linux-x86-64.so.2", "--library-path", libraries]
        python += [root / "bin" / "python3", "-P", "-W", "ignore"]
        compiler = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
        places = ["-s", str(folder), "-p", "/", str(folder)]
        environment = {"PYTHONHOME": str(root)}
        subprocess.run([*python, *compiler, *places], env=environment, check=False)


def digest() -> str:
    """Return a digest, 12 hexadecimal digits, of all sources of the image."""
    whole = hashlib.sha256()
    for source in SOURCES:
        whole.update(source.read_bytes())
    return whole.hexdigest()[:12]


def image(suite: Suite = Suite.BOOKWORM) -> Image:
    """Return the image of a suite, built if missing.

    Raises `NotReady` if that fails, a tool is missing, or the machine is no x86_64.
    """
    if platform.machine() != ARCHITECTURE:
        raise NotReady(
            f"virtual machine: needs an {ARCHITECTURE} processor, got {platform.machine()}; "
            "run scenarios by the real clock, as root: `sudo ./railbed run`"
        )
    build = f"{suite}-{digest()}"
    built = cached_part("system", build, lambda folder: _build(folder, "system", suite))
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise NotReady(
            f"virtual machine: {', '.join(missing)} not found; install Debian's packages "
            "qemu-system-x86 and cpio"
        )
    return Image(built)


def proxy_root() -> Path:
    """Return the root tar file of the proxies' image, built if missing; raise `NotReady` if not."""
    return cached_part("proxies", digest(), lambda folder: _build(folder, "proxies")) / "root.tar"


def _build(target: Path, part: str, *suite: str) -> None:
    what = f"building the virtual machine's {part} from Debian packages, once; takes minutes"
    print(f"railbed: {what}", file=sys.stderr)
    if exit_code_of(BUILDER, part, target, *suite) != 0:
        raise NotReady(f"virtual machine: build of its {part} failed; see the lines above")


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
    listed = subprocess.run(find, capture_output=True, text=True, check=True).stdout
    return sorted(name for name in listed.split("\0") if name)


class Program:
    """Debian's kernel, and the initrd of a virtual machine that has Railbed in `INSIDE`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kernel = folder / "kernel"
        self.initrd = folder / "initrd"

    @property
    def digest(self) -> str:
        """A digest of both, 16 hexadecimal digits: two machines with the same one are the same."""
        return (self.folder / "digest").read_text()

    def initrd_with(self, files: Mapping[Path, Path], folder: Path) -> Path:
        """Return an initrd that has copies of files, too, by their paths inside.

        If there are any, it is made in `folder`.
        """
        if not files:
            return self.initrd
        stage, made = folder / "stage", folder / "initrd"
        for inside, file in files.items():
            copy = stage / inside.relative_to("/")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        _make_uniform(stage)
        shutil.copyfile(self.initrd, made)
        with made.open("ab") as initrd:
            for top in sorted(stage.iterdir()):
                append(initrd, stage, top)
        shutil.rmtree(stage)
        return made


def program() -> Program:
    """Return kernel and initrd, made if the program or the system has changed.

    Raises `NotReady` if the program changes meanwhile.
    """
    system, version = image(), program_version()
    name = f"{system.folder.name}-{version}"
    return Program(cached_part("program", name, lambda folder: _make(system, version, folder)))


def _make(system: Image, version: str, folder: Path) -> None:
    stage = folder / "stage"
    copy = stage / INSIDE.relative_to("/")
    _copy_program(system.environment, copy)
    if program_version(copy) != version:
        raise NotReady("virtual machine: the program has changed meanwhile; run the command again")
    system.compile(stage)
    _make_uniform(stage)
    write_initrd(folder / "initrd", [system.archive], [])
    with (folder / "initrd").open("ab") as initrd:
        append(initrd, stage, copy)
    shutil.rmtree(stage)
    shutil.copyfile(system.kernel, folder / "kernel")
    parts = {Path(name): folder / name for name in ("kernel", "initrd")}
    (folder / "digest").write_text(digest_of(parts))


def _copy_program(environment: Path, target: Path) -> None:
    ignored = shutil.ignore_patterns(*NOT_NEEDED)
    for room in ROOMS:
        shutil.copytree(ROOT / room, target / room, ignore=ignored)
    no_scripts = shutil.ignore_patterns("[!p]*", "p[!y]*")
    for part, kept_out in (("lib", ignored), ("bin", no_scripts)):
        shutil.copytree(
            environment / part, target / ENVIRONMENT / part, symlinks=True, ignore=kept_out
        )
    shutil.copyfile(environment / "pyvenv.cfg", target / ENVIRONMENT / "pyvenv.cfg")


def _make_uniform(stage: Path) -> None:
    """Give files the same rights and dates on every machine."""
    for place in (stage, *stage.rglob("*")):
        if not place.is_symlink():
            executable = place.is_dir() or place.stat().st_mode & 0o100
            place.chmod(0o755 if executable else 0o644)
        os.utime(place, (EPOCH_S, EPOCH_S), follow_symlinks=False)
