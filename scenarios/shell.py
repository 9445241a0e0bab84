"""Mininet's command line on a fabric that is up."""

import os

from mininet.cli import CLI

from scenarios.experiment import experiment
from scenarios.scenario import Scenario
from testbed.marks import marked_run
from testbed.proxies import ProxyKind


def open_shell(scenario: Scenario, proxies: ProxyKind) -> None:
    """Bring the scenario's first fabric up until the user leaves the command line."""
    with (
        marked_run(f"up-{scenario.name}-{os.getpid()}") as mark,
        experiment(scenario.fabrics[0], proxies, mark) as fabric,
    ):
        CLI(fabric.bed.network)
