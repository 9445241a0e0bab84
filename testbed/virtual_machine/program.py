"""The initrd of the virtual clock: Debian, and Railbed with its Python environment.

It is the same, byte for byte, wherever it is made from the same packages and the same program.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from linux.files.program_files import ROOMS, ROOT, program_version
from linux.files.user_files import digest_of
from testbed.virtual_machine.cache import cached_part
from testbed.virtual_machine.image import Image, append, image, write_initrd

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
    """Return kernel and initrd, made if the program or the system has changed."""
    system = image()
    version = f"{system.folder.name}-{program_version()}"
    return Program(cached_part("program", version, lambda folder: _make(system, folder)))


def _make(system: Image, folder: Path) -> None:
    stage = folder / "stage"
    _copy_program(system.environment, stage / INSIDE.relative_to("/"))
    system.compile(stage)
    _make_uniform(stage)
    write_initrd(folder / "initrd", [system.archive], [])
    with (folder / "initrd").open("ab") as initrd:
        append(initrd, stage, stage / INSIDE.relative_to("/"))
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
