"""A fault as a user types it: `d0g0--rail0 degrade 100 Gbit/s`."""

from collections.abc import Sequence

from model.errors import InputError, Problem
from model.fabric.topology import Topology
from model.faults import FINAL, POSSIBLE, Component, Fault, FaultMode, components
from scenarios.format.faults import LEAST_LEFT_BPS, rate_problem
from scenarios.format.issues import did_you_mean
from scenarios.format.units import RATES, parse_quantity

USAGE = "fault NAME [MODE [RATE]]"


def targets(topology: Topology) -> dict[str, Component]:
    """All components of a fabric that can fail, by their names."""
    return {name: kind for kind in Component for name in components(topology, kind)}


def modes(component: Component) -> tuple[FaultMode, ...]:
    """The modes in which a component can fail in a session: lasting ones that can be undone."""
    lasting = POSSIBLE[component] - {FaultMode.FLAP}
    return tuple(mode for mode in FaultMode if mode in lasting and (component, mode) not in FINAL)


def parse_fault(topology: Topology, words: Sequence[str]) -> Fault:
    """Parse the words of a fault; raises `InputError` with the mistake."""
    if not words:
        raise InputError(Problem("fault", f"needs the name of a component; usage: {USAGE}"))
    target, *rest = words
    component = require_target(topology, target)
    mode = _mode(component, rest[0] if rest else modes(component)[0])
    fault = Fault(component, mode, target, rate_bps=_rate_bps(topology, mode, rest[1:]))
    if what := rate_problem(topology, fault):
        raise InputError(Problem("fault", f"remaining rate {what}"))
    return fault


def require_target(topology: Topology, name: str) -> Component:
    """Return the kind of a component; raises `InputError` if the fabric has none of this name."""
    known = targets(topology)
    if name not in known:
        what = f"unknown component {name!r}{did_you_mean(name, tuple(known))}".rstrip(";")
        raise InputError(Problem("fault", what, "links are named as `links` shows them"))
    return known[name]


def _mode(component: Component, word: str) -> FaultMode:
    possible = modes(component)
    if word not in possible:
        hint = "use a scenario for this mode" if word in POSSIBLE[component] else ""
        what = f"mode of a {component} must be {', '.join(possible)}, got {word!r}"
        raise InputError(Problem("fault", what, hint))
    return FaultMode(word)


def _rate_bps(topology: Topology, mode: FaultMode, words: Sequence[str]) -> int | None:
    """Return the emulated rate of a degraded link; `None` for all other modes."""
    if mode is not FaultMode.DEGRADE:
        if words:
            raise InputError(
                Problem("fault", f"{mode} takes no further arguments, got {' '.join(words)!r}")
            )
        return None
    try:
        rate_bps = parse_quantity(" ".join(words), RATES) / topology.spec.bandwidth_scale
    except ValueError as error:
        raise InputError(Problem("fault", f"remaining rate {error}")) from error
    if rate_bps < LEAST_LEFT_BPS:
        what = f"leaves {rate_bps:.3g} bit/s, below the {LEAST_LEFT_BPS} that can be shaped"
        raise InputError(Problem("fault", what, "use blackhole for a link that carries none"))
    return round(rate_bps)
