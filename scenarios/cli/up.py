"""A fabric for interactive use, with Mininet's command line."""

import os

from scenarios.execution.emulation import experiment
from scenarios.spec.scenario import Scenario
from testbed.fabric.mininet_shell import open_command_line
from testbed.nodes.gpu_proxies import ProxyKind


def open_shell(scenario: Scenario, proxies: ProxyKind) -> None:
    """Bring the scenario's first fabric up until the user leaves the command line."""
    run_id = f"up-{scenario.name}-{os.getpid()}"
    with experiment(scenario.fabrics[0], proxies, run_id) as fabric:
        fabric.bed.impair()
        open_command_line(fabric.bed.network)
