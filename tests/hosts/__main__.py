"""Execute the README's commands on a Debian release, each from nothing, and note their results.

    sudo .venv/bin/python -m tests.hosts trixie            in namespaces on this machine's kernel
    sudo .venv/bin/python -m tests.hosts trixie --kernel   in virtual machines with its own kernel
    sudo .venv/bin/python -m tests.hosts trixie --container  Railbed's container, on an engine there

`--only WORD` executes the commands alone that contain the word. Commands run in a clone of the last
commit. One that passes gets a line in `proved_hosts.csv` and in the guide on installing; the output
of each is in the folder that is named at the start.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from linux.files.user_files import work_folder
from testbed.host.preflight import PROVED, Proof
from testbed.virtual_machine.cache import cached_part
from testbed.virtual_machine.image import Suite
from tests.hosts.proofs import GUIDE, note
from tests.hosts.root import REPOSITORY, HostRoot, client_environment, host_root, make_archive

DEBIAN = {Suite.BOOKWORM: ("12", "3.11"), Suite.TRIXIE: ("13", "3.13")}
USER = "somebody"
AS_USER = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups")
VIRTUAL = "./railbed run quickstart --clock virtual"
BY_ROOT = ("./railbed demo --proxies process", "./railbed demo", "./railbed test")
IN_CONTAINER = "docker run --privileged railbed demo --proxies process"
# Options of `railbed vm`, by the command in the machine.
ON_ITS_KERNEL = {
    "./railbed demo --proxies process": (),
    "./railbed demo": ("--docker", "--memory", "6144"),
}
MOST_S = 3 * 3600
# For roots of gigabytes: /tmp may be in memory.
LARGE = Path("/var/tmp")


def main() -> None:
    """Execute the commands; exit code 1 if one did not pass."""
    options = arguments()
    require_committed()
    logs = Path(mkdtemp(prefix=f"railbed-{options.suite}-"))
    print(f"The output of each command is in {logs}.", flush=True)
    execute = in_namespaces
    if options.kernel:
        execute = on_its_kernel
    elif options.container:
        execute = in_container
    passed = list(execute(options.suite, logs, lambda command: options.only in command))
    sys.exit(0 if passed and all(passed) else 1)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="tests.hosts", description=__doc__, formatter_class=as_written
    )
    parser.add_argument("suite", type=Suite, choices=list(Suite))
    parser.add_argument("--kernel", action="store_true", help="the release's own kernel")
    parser.add_argument("--container", action="store_true", help="build and run the container")
    parser.add_argument("--only", default="", metavar="WORD", help="commands with this word")
    return parser.parse_args()


def require_committed() -> None:
    """The hosts get a clone; only the files of results may differ from it."""
    results = [f":!{file.relative_to(REPOSITORY)}" for file in (PROVED, GUIDE)]
    if changed := said("git", "status", "--porcelain", "--", ".", *results):
        sys.exit(f"Commit first: the hosts get a clone. Changed:\n{changed}")


def said(*command: str) -> str:
    """Return what a command of this machine prints in the repository."""
    return subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.strip()


# In namespaces


def in_namespaces(suite: Suite, logs: Path, wanted: Callable[[str], bool]) -> Iterator[bool]:
    """Execute the commands in bare roots of the release; yield whether each passed."""
    archive = host_archive(suite)
    with work_folder(LARGE) as folder:
        by_root = [command for command in BY_ROOT if wanted(command)]
        if by_root:
            with host_root(archive, folder / "root") as root:
                clone(root, "/railbed")
                for command in by_root:
                    words = root.command("sh", "-c", f"cd /railbed && {command}")
                    runs = root.folder / "railbed" / "runs"
                    yield judged(suite, f"sudo {command}", words, logs, runs)
        if wanted(VIRTUAL):
            with host_root(archive, folder / "user") as root:
                make_user(root)
                words = root.command(*AS_USER, "sh", "-c", f"cd /home/{USER}/railbed && {VIRTUAL}")
                runs = root.folder / "home" / USER / "railbed" / "runs"
                yield judged(suite, VIRTUAL, words, logs, runs, HOME=f"/home/{USER}")


def host_archive(suite: Suite) -> Path:
    """Return the release's root as a tar file, made if missing."""
    made = cached_part("host", suite, lambda folder: make_archive(suite, folder / "root.tar"))
    return made / "root.tar"


def clone(root: HostRoot, inside: str) -> None:
    """Clone the last commit into a root."""
    said("git", "clone", "--quiet", f"file://{REPOSITORY}", f"{root.folder}{inside}")


def make_user(root: HostRoot) -> None:
    """Make an ordinary user with a clone, and install what the guide on the virtual clock says."""
    guide = (REPOSITORY / "docs" / "guides" / "virtual-clock.md").read_text()
    (packages,) = re.findall(r"^sudo apt-get install (.*)$", guide, re.MULTILINE)
    clone(root, "/clone")
    script = (
        f"apt-get -qq update && apt-get -qq --yes install ca-certificates {packages}"
        f" && useradd --create-home {USER} && mv /clone /home/{USER}/railbed"
        f" && chown --recursive {USER}: /home/{USER}/railbed"
    )
    done = root.run("sh", "-c", script, DEBIAN_FRONTEND="noninteractive")
    assert done.returncode == 0, done.stderr


# In a container


def in_container(suite: Suite, logs: Path, wanted: Callable[[str], bool]) -> Iterator[bool]:
    """Build the container in a bare root of the release, and run the demo; yield if it passed."""
    if not wanted(IN_CONTAINER):
        return
    archive = host_archive(suite)
    with (
        work_folder(LARGE) as folder,
        host_root(archive, folder / "root") as root,
    ):
        # The image of the base gets this machine's ways to packages, which the root has now.
        base = root.folder / "base.tar"
        pack = ["tar", "-c", "--exclude=./base.tar", "-C", str(root.folder), "-f", str(base), "."]
        subprocess.run(pack, check=True)
        clone(root, "/railbed")
        words = root.command("/railbed/tests/hosts/container.sh", "/base.tar")
        runs = root.folder / "home" / USER / "experiment" / "runs"
        yield judged(suite, IN_CONTAINER, words, logs, runs)


# In virtual machines


def on_its_kernel(suite: Suite, logs: Path, wanted: Callable[[str], bool]) -> Iterator[bool]:
    """Execute the commands in virtual machines; yield whether each passed."""
    for command, options in ON_ITS_KERNEL.items():
        if wanted(command):
            with work_folder() as folder:
                machine = [str(REPOSITORY / "railbed"), "vm", "--suite", suite, *options, "--"]
                words = ["env", "--chdir", str(folder), *machine, *command.split()]
                yield judged(suite, f"sudo {command}", words, logs, folder / "runs")


# Results


def judged(
    suite: Suite, command: str, words: list[str], logs: Path, runs: Path, **variables: str
) -> bool:
    """Execute a command, print how it ended, and note it if it passed."""
    known = set(runs.glob("*/result.json"))
    log = logs / f"{command.replace('./', '').replace(' ', '-')}.log"
    began_s = time.monotonic()
    with log.open("w") as output:
        done = subprocess.run(
            words,
            env=client_environment(variables),
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=MOST_S,
        )
    duration_s = time.monotonic() - began_s
    results = [json.loads(file.read_text()) for file in set(runs.glob("*/result.json")) - known]
    result = of_run(results[0]) if results else of_tests(log.read_text())
    print(f"{command}: exit code {done.returncode}, {result}, {duration_s:.0f} s", flush=True)
    if done.returncode == 0:
        version, python = DEBIAN[suite]
        release = kernel_of(runs) if "--kernel" in sys.argv else platform.release()
        kernel = ".".join(release.split(".")[:2])
        host = ("debian", version, platform.machine(), python, kernel)
        today = date.today().isoformat()
        note(Proof(*host, today, command, result, f"{duration_s:.0f}"))
    return done.returncode == 0


def of_run(result: dict[str, Any]) -> str:
    """Return the verdict of a run, and its ratios of measured and modeled time."""
    ratios = [case["ratio"] for case in result["cases"]]
    return f"{result['verdict']}, measured/modeled {min(ratios):.4f} to {max(ratios):.4f}"


def of_tests(output: str) -> str:
    """Return the number of tests that passed, as pytest counts them."""
    counts = re.findall(r"(\d+) passed", output)
    return f"{sum(map(int, counts))} tests passed"


def kernel_of(runs: Path) -> str:
    """Return the kernel of a run, from its folder."""
    (environment,) = runs.glob("*/environment.json")
    kernel: str = json.loads(environment.read_text())["kernel"]
    return kernel


main()
