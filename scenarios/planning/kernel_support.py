"""Refuse scenarios that this kernel cannot emulate, before anything comes up."""

import os
from typing import TYPE_CHECKING

from model.errors import InputError, Problem

if TYPE_CHECKING:
    from scenarios.scenario import Scenario


def require_possible(scenario: "Scenario") -> None:
    """Refuse fabrics and faults that this kernel cannot make; only root can check."""
    require_fabrics(scenario)
    if os.geteuid() == 0:
        _require_faults(scenario)


def require_fabrics(scenario: "Scenario") -> None:
    """Refuse fabrics that this kernel cannot make, but no faults; only root can check."""
    if os.geteuid() == 0:
        _require_netem(scenario)
        require_datapaths(scenario)


def require_datapaths(scenario: "Scenario") -> None:
    """Raise `NotReady` if the datapath that a scenario names is not available; needs root.

    The default datapath is not checked here: the machine's checks include its requirements.
    """
    from testbed.nodes.openvswitch import require_datapath

    for datapath in {spec.datapath for spec in scenario.fabrics}:
        if datapath is not None:
            require_datapath(datapath)


def _require_netem(scenario: "Scenario") -> None:
    """Refuse delay and loss of links where the kernel has no netem."""
    if not any(spec.hb.impairment or spec.nic.impairment for spec in scenario.fabrics):
        return
    from testbed.fabric.shaping import missing_netem

    if (sentence := missing_netem()) is not None:
        raise InputError(Problem(f"{scenario.name}: fabric", sentence))


def _require_faults(scenario: "Scenario") -> None:
    modes = {fault.mode for faults in scenario.faults.values() for fault in faults}
    if not modes:
        return
    from testbed.faults.injector import missing_for

    missing = [sentence for mode in sorted(modes) if (sentence := missing_for(mode)) is not None]
    if missing:
        raise InputError(*(Problem(f"{scenario.name}: faults", what) for what in missing))
