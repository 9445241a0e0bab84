"""Mininet's command line on a fabric that is up."""

from mininet.cli import CLI
from mininet.net import Mininet


def open_command_line(network: Mininet) -> None:
    """Serve the command line until its user leaves it."""
    CLI(network)
