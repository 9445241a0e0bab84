"""A host of another Debian release: its root file system, in namespaces on this kernel.

Commands inside see the release's programs and Python, this machine's kernel, devices and network,
and none of its processes, files and engines. What they start and mount ends with them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

# Settings by which this machine reaches its package index and mirror; copied unchanged.
CLIENT_FILES = (
    "/etc/apt/auth.conf",
    "/etc/apt/auth.conf.d",
    "/etc/apt/trusted.gpg.d",
    "/etc/hosts",
    "/etc/pip.conf",
    "/etc/resolv.conf",
    "/etc/uv/uv.toml",
    "~/.config/pip/pip.conf",
    "~/.config/uv/uv.toml",
    # Authorities of its own, which Debian's bundle gets when ca-certificates is installed.
    "/usr/local/share/ca-certificates",
)
CLIENT_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy", "pip_index", "uv_")

# `unshare` and the program's own mount namespaces need a root that is a mount of its own
# (pivot_root(2)); a Docker Engine needs one for its layers that is no overlay.
ENTER = """
root=$1; shift
mount --make-rprivate /
mount --bind "$root" "$root"
cd "$root"
mount --rbind /dev dev
mount -t proc proc proc
mount --rbind /sys sys
for folder in run tmp var/lib/docker; do mkdir -p "$folder"; mount -t tmpfs tmpfs "$folder"; done
chmod 1777 tmp
mkdir -p old
pivot_root . old
umount --lazy /old
# This shell stays, as root: who becomes another user outlives the end of a parent (prctl(2)).
status=0
"$@" || status=$?
exit "$status"
"""
# Whatever becomes of this process, all that runs inside ends with it.
APART = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child")


@dataclass(frozen=True)
class HostRoot:
    """The root file system of a host, in a folder."""

    folder: Path

    def command(self, *command: str) -> list[str]:
        """Return the words that execute a command inside, as root."""
        return [*APART, "bash", "-ec", ENTER, "enter", str(self.folder), *command]

    def run(
        self, *command: str, timeout_s: float = 900, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Execute a command inside, as root; return its exit code and output."""
        return subprocess.run(
            self.command(*command),
            env=client_environment(variables),
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )


def client_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a fresh login, with this machine's ways to packages."""
    ways = {k: v for k, v in os.environ.items() if k.lower().startswith(CLIENT_VARIABLES)}
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", **ways, **variables}


@contextmanager
def host_root(archive: Path, folder: Path) -> Iterator[HostRoot]:
    """Unpack a root that was made by `make_archive`, and remove it at the end."""
    folder.mkdir()
    try:
        subprocess.run(["tar", "-x", "-C", str(folder), "-f", str(archive)], check=True)
        _take_over_client_files(folder)
        _keep_daemons_from_starting(folder)
        _do_without_syncs(folder)
        yield HostRoot(folder)
    finally:
        shutil.rmtree(folder)  # gigabytes


def make_archive(suite: str, archive: Path) -> None:
    """Make the root of a Debian release, `minbase`, from this machine's own mirror."""
    provision = f". {REPOSITORY}/testbed/provision.sh; image_suite={suite}"
    script = f"{provision}; debian_root {archive} --variant=minbase"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr


def _take_over_client_files(folder: Path) -> None:
    for name in CLIENT_FILES:
        source, target = Path(name).expanduser(), folder / name.replace("~", "/root", 1)[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        elif source.exists():
            shutil.copy(source, target)


def _keep_daemons_from_starting(folder: Path) -> None:
    policy = folder / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)


def _do_without_syncs(folder: Path) -> None:
    """Let dpkg not wait for the disk: nobody needs this root after a crash."""
    (folder / "etc/dpkg/dpkg.cfg.d/unsafe-io").write_text("force-unsafe-io\n")
