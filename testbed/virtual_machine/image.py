"""The virtual machine's image: stock Debian 12 with its own kernel, built once and cached.

Each part is named by a digest of its sources, and rebuilt when they change.
"""

import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from model.errors import NotReady
from testbed.virtual_machine.cache import cached_part

HERE = Path(__file__).parent
BUILDER = HERE / "image.sh"
SOURCES = (BUILDER, HERE.parent / "provision.sh")
TOOLS = ("qemu-system-x86_64", "cpio")


@dataclass(frozen=True)
class Image:
    """The files that a virtual machine starts from."""

    folder: Path

    @property
    def kernel(self) -> Path:
        """Debian's kernel."""
        return self.folder / "kernel"

    @property
    def archive(self) -> Path:
        """The root file system, as a cpio archive that the kernel unpacks into memory."""
        return self.folder / "system.cpio"

    @property
    def engine(self) -> Path:
        """The programs of a Docker Engine, as another such archive."""
        return self.folder / "docker.cpio"


def digest() -> str:
    """Return a digest, 12 hexadecimal digits, of all sources of the image."""
    whole = hashlib.sha256()
    for source in SOURCES:
        whole.update(source.read_bytes())
    return whole.hexdigest()[:12]


def image() -> Image:
    """Return the image, built if missing; raise `NotReady` if that fails or a tool is missing."""
    built = cached_part("system", digest(), lambda folder: _build("system", folder))
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise NotReady(
            f"virtual machine: {', '.join(missing)}: not found; install Debian's packages "
            "qemu-system-x86 and cpio"
        )
    return Image(built)


def proxy_root() -> Path:
    """Return the root tar file of the proxies' image, built if missing; raise `NotReady` if not."""
    return cached_part("proxies", digest(), lambda folder: _build("proxies", folder)) / "root.tar"


def _build(part: str, target: Path) -> None:
    done = subprocess.run([BUILDER, part, target], stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise NotReady(f"virtual machine: its {part} was not built; the lines above say why")
