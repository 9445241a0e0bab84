"""A fabric to play with: up until the user leaves Mininet's command line."""

import os

from scenarios.experiment import experiment
from scenarios.scenario import Scenario
from testbed.marks import marked_run
from testbed.proxies import ProxyKind
from testbed.shell import open_command_line


def open_shell(scenario: Scenario, proxies: ProxyKind) -> None:
    """Bring the scenario's first fabric up until the user leaves the command line."""
    with (
        marked_run(f"up-{scenario.name}-{os.getpid()}") as mark,
        experiment(scenario.fabrics[0], proxies, mark) as fabric,
    ):
        fabric.bed.impair()
        open_command_line(fabric.bed.network)
