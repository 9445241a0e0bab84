"""Show a sweep on a Ray cluster of several nodes on this machine, one of them killed meanwhile.

    testbed/install_ray.sh
    sudo PYTHONPATH=. .venv/bin/python -m tests.ray_cluster [--clock virtual]

Every point must have a result, and the point of the killed node must have gone to another one. By
the real clock, nodes on one machine disturb each other: the expectations are wide. Ray gives its
nodes 30 s to start, which may not be enough beside much other work.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from execution.sweep.ray_executor import RAY
from linux.files.user_files import WORK_PREFIX
from model.sweep import VIRTUAL
from tests.machine import wait_until
from tests.system.test_sweeps import ENVIRONMENT, SCENARIO

NODES, POINTS = 3, 6
COMMAND = (sys.executable, "-P", "-m", "commands", "sweep")


@contextmanager
def cluster(nodes: int, folder: Path) -> Iterator[tuple[Any, list[Any]]]:
    """A cluster with a head and some nodes of one core, which keep their files in a folder."""
    sys.path.append(str(RAY))
    # For Ray's own processes, and for its files, one of which goes to the default place always.
    os.environ |= {"PYTHONPATH": str(RAY), "RAY_TMPDIR": str(folder)}
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False}
    ray = Cluster(initialize_head=True, head_node_args=head)
    try:
        yield ray, [ray.add_node(num_cpus=1) for _ in range(nodes)]
    finally:
        ray.shutdown()


def runs_under_way() -> int:
    """How many runs the cluster's nodes execute now."""
    return sum(b"\0run\0" in line and WORK_PREFIX.encode() in line for line in _command_lines())


def _command_lines() -> Iterator[bytes]:
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # the process has ended
            yield place.read_bytes()


def has_runs(process: "subprocess.Popen[str]", number: int) -> bool:
    """Whether the cluster executes this many runs; fails if the sweep has ended."""
    assert process.poll() is None, f"the sweep ended with exit code {process.returncode}"
    return runs_under_way() == number


def sweep(folder: Path, address: str, clock: str) -> "subprocess.Popen[str]":
    """Begin the sweep."""
    scenario = folder / "small.yaml"
    scenario.write_text(SCENARIO)
    seeds = ",".join(map(str, range(1, POINTS + 1)))
    options = ["--over", f"seed={seeds}", "--proxies", "process", "--clock", clock]
    if clock == VIRTUAL:
        options += ["--fresh"]
    ray = ["--executor", "ray", "--address", address, "--json", "--store", str(folder / "runs")]
    return subprocess.Popen(
        [*COMMAND, str(scenario), *options, *ray],
        stdout=subprocess.PIPE,
        stderr=sys.stderr,
        text=True,
        env=ENVIRONMENT,
    )


def main() -> None:
    """Run the sweep, kill a node, and check all points."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clock", default="real", choices=("real", "virtual"))
    clock = parser.parse_args().clock
    with (
        TemporaryDirectory() as name,
        cluster(NODES, Path(name)) as (ray, nodes),
    ):
        with sweep(Path(name), ray.address, clock) as process:
            wait_until(lambda: has_runs(process, NODES), "each node has a run", 300)
            print(f"{NODES} nodes have a run each; one node is killed", file=sys.stderr)
            ray.remove_node(nodes[0], allow_graceful=False)
            said, _ = process.communicate()
        assert process.returncode in (0, 1), f"exit code {process.returncode}: {said[:600]}"
        result = json.loads(said)
        assert [bool(point["cases"]) for point in result["points"]] == [True] * POINTS
        print(f"All {POINTS} points have results; {result['verdict']}.")


if __name__ == "__main__":
    main()
