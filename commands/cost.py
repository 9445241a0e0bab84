"""The command `cost`: price and power of the networks of both fabrics."""

from pathlib import Path
from typing import Annotated

import typer

from commands.options import AsJson
from commands.output import err, print_result
from model.errors import InputError, Problem
from model.fabric.network_cost import Nics, Prices, networks
from model.fabric.spec import Planes
from results.sections.modeled import cost_sections
from scenarios.format.prices import DEFAULT, load_prices, zeros

MOST_GPUS, MOST_RADIX, MOST_PORTS = 10**9, 10**6, 2

DomainSize = Annotated[int, typer.Option("--domain-size", metavar="K", help="GPUs of an HB domain")]


def cost(
    gpus: Annotated[int, typer.Option(metavar="N", help="number of GPUs")],
    radix: Annotated[int, typer.Option(metavar="R", help="ports of a switch")],
    domain_size: DomainSize,
    gpus_per_nic: Annotated[int, typer.Option(metavar="M", help="GPUs that share a NIC")] = 1,
    nic_ports: Annotated[int, typer.Option(metavar="P", help="ports of a NIC: 1 or 2")] = 1,
    planes: Annotated[Planes, typer.Option(help="whether the ports' switches share spines")] = (
        Planes.BONDED
    ),
    prices: Annotated[
        Path | None, typer.Option(metavar="FILE", help="your own prices; default: Railbed's")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the networks of both fabrics for these sizes, at these prices."""
    nics = Nics(gpus_per_nic, nic_ports, planes)
    _require_possible(gpus, radix, domain_size, nics)
    asked = {"schema": "railbed.cost/1", "gpus": gpus, "radix": radix, "domain_size": domain_size}
    asked |= {"gpus_per_nic": gpus_per_nic, "nic_ports": nic_ports, "planes": planes.value}
    costs = networks(gpus, radix, domain_size, prices_of(prices or DEFAULT), nics)
    print_result({**asked, **costs}, as_json, cost_sections)


def prices_of(path: Path) -> Prices:
    """Return the prices in a file, after a warning about those that are all 0."""
    prices = load_prices(path).prices
    for what in zeros(prices):
        err.print(f"Warning: {path}: {what}.", soft_wrap=True)
    return prices


def _require_possible(gpus: int, radix: int, domain_size: int, nics: Nics) -> None:
    """Raise `InputError` with every size that no fabric has, or for NICs that no domain has."""
    problems = []
    if not 1 <= gpus <= MOST_GPUS:
        problems.append(Problem("--gpus", f"must be 1 to {MOST_GPUS}, got {gpus}"))
    elif not 1 <= domain_size <= gpus:
        what = f"must be 1 to {gpus}, the number of GPUs, got {domain_size}"
        problems.append(Problem("--domain-size", what))
    if radix % 2 or not 4 <= radix <= MOST_RADIX:
        what = f"must be an even number from 4 to {MOST_RADIX}, got {radix}"
        problems.append(Problem("--radix", what))
    if problems:
        raise InputError(*problems)
    if nics.gpus_per_nic < 1 or domain_size % nics.gpus_per_nic:
        what = f"must divide --domain-size, {domain_size}, got {nics.gpus_per_nic}"
        raise InputError(Problem("--gpus-per-nic", what))
    if not 1 <= nics.ports <= MOST_PORTS:
        raise InputError(Problem("--nic-ports", f"must be 1 or {MOST_PORTS}, got {nics.ports}"))
    if nics.planes is Planes.SEPARATE and nics.ports == 1:
        what = "needs two ports; a NIC has 1 port"
        raise InputError(Problem("--planes", what, "add --nic-ports 2"))
