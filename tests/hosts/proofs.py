"""What was shown on which host: the lines of `proved_hosts.csv`, and their table in the guide."""

import csv
from collections.abc import Iterable
from dataclasses import asdict, fields

from testbed.host.preflight import PROVED, Proof, known_proofs
from tests.hosts.root import REPOSITORY

GUIDE = REPOSITORY / "docs" / "guides" / "installing.md"
HEADER = "| host | kernel | command | result | time | date |"
RULE = "|---|---|---|---|---|---|"


def note(proof: Proof) -> None:
    """Add a proof, which replaces an earlier one of the same command on such a host and kernel."""
    others = [known for known in known_proofs() if _case(known) != _case(proof)]
    with PROVED.open("w", newline="") as file:
        lines = csv.DictWriter(file, [field.name for field in fields(Proof)], lineterminator="\n")
        lines.writeheader()
        lines.writerows(map(asdict, sorted([*others, proof], key=_case)))
    _show(known_proofs())


def _case(proof: Proof) -> tuple[str, ...]:
    return (
        *(proof.distribution, proof.version, proof.architecture, proof.python),
        *(proof.kernel, proof.command),
    )


def table(proofs: Iterable[Proof]) -> list[str]:
    """Return the lines of the guide's table; a host that repeats the one above is empty."""
    known = list(proofs)
    hosts = [_host(proof) for proof in known]
    above = ["", *hosts]
    shown = ["" if host == last else host for host, last in zip(hosts, above, strict=False)]
    return [HEADER, RULE, *map(_row, shown, known)]


def _host(proof: Proof) -> str:
    host = f"{proof.distribution.capitalize()} {proof.version}, {proof.architecture}"
    return f"{host}, Python {proof.python}"


def _row(host: str, proof: Proof) -> str:
    minutes, seconds = divmod(round(float(proof.duration_s)), 60)
    cells = (
        host,
        proof.kernel,
        f"`{proof.command}`",
        proof.result,
        f"{minutes} min {seconds:02d} s",
        proof.date,
    )
    return f"| {' | '.join(cells)} |"


def _show(proofs: Iterable[Proof]) -> None:
    """Replace the guide's table."""
    lines = GUIDE.read_text().splitlines()
    first = lines.index(HEADER)
    last = next(n for n in range(first, len(lines)) if not lines[n].startswith("|"))
    GUIDE.write_text("\n".join([*lines[:first], *table(proofs), *lines[last:], ""]))
