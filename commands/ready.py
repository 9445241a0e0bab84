"""The machine must be ready before a command brings a fabric up.

Importing the testbed's libraries takes a second: only commands that need them do it.
"""

from typing import Any

from commands.output import err
from model.errors import InputError, Problem


def proxy_kind(proxies: str) -> Any:
    """Parse the value of `--proxies`; raises `InputError` if it is unknown."""
    from testbed.nodes.gpu_proxies import ProxyKind

    if proxies not in list(ProxyKind):
        what = f"must be {' or '.join(ProxyKind)}, got {proxies!r}"
        raise InputError(Problem("--proxies", what))
    return ProxyKind(proxies)


def ready(proxies: str, without_root: str = "") -> Any:
    """Require a ready machine, clean up after dead runs, and return the kind of proxies.

    `without_root` is a hint for users without root, which the error ends with.
    """
    from testbed.host.cleanup import clean
    from testbed.host.preflight import require_ready

    kind = proxy_kind(proxies)
    require_ready(kind, without_root)
    removed = clean()
    if removed:
        err.print(f"Removed leftovers of killed runs: {removed}.")
    return kind
