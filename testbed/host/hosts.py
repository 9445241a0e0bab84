"""The kind of this machine, and whether Railbed has been shown to work on such a one.

`proved_hosts.csv` has a line for each of the README's commands that ended well on a kind of host;
`tests/hosts` executes them, and adds the lines.
"""

import csv
import platform
from dataclasses import dataclass
from pathlib import Path

PROVED = Path(__file__).with_name("proved_hosts.csv")
ELSEWHERE = "use Railbed's container or its virtual machine (docs/guides/installing.md)"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Proof:
    """A command that ended well on a kind of host.

    `kernel` is Linux's version, such as 6.12, `date` that of the end, `duration_s` in seconds.
    """

    distribution: str
    version: str
    architecture: str
    python: str
    kernel: str
    date: str
    command: str
    result: str
    duration_s: str


def known_proofs(proved: Path = PROVED) -> list[Proof]:
    """Return all lines of the file, in their order."""
    with proved.open(newline="") as lines:
        return [Proof(**row) for row in csv.DictReader(lines)]


@dataclass(frozen=True)
class Host:
    """A kind of host: distribution and its version, architecture, and Python without patch level.

    `name` is the distribution in its own words, `kernel` Linux's release; they make no other kind.
    """

    distribution: str
    version: str
    architecture: str
    python: str
    name: str = UNKNOWN
    kernel: str = UNKNOWN

    def __str__(self) -> str:
        return f"{self.name}, Linux {self.kernel}, Python {self.python}, {self.architecture}"

    def _is_kind_of(self, proof: Proof) -> bool:
        kind = (proof.distribution, proof.version, proof.architecture, proof.python)
        return kind == (self.distribution, self.version, self.architecture, self.python)

    def shown(self, proved: Path = PROVED) -> str:
        """Say when Railbed was shown to work on this kind of host; empty if it never was."""
        proofs = [proof for proof in known_proofs(proved) if self._is_kind_of(proof)]
        if not proofs:
            return ""
        kernels = sorted({proof.kernel for proof in proofs})
        last = max(proof.date for proof in proofs)
        return f"shown to work on {last}, with Linux {' and '.join(kernels)}"


def this_host() -> Host:
    """Return this machine's kind, from os-release(5)."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    return Host(
        distribution=release.get("ID", UNKNOWN),
        version=release.get("VERSION_ID", UNKNOWN),
        architecture=platform.machine(),
        python=".".join(platform.python_version_tuple()[:2]),
        name=release.get("PRETTY_NAME", UNKNOWN),
        kernel=platform.release(),
    )
