"""Other runs on this machine at the same time, which disturb each other's measurements."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from execution.cases.emulation import Experiment, experiment
from linux.processes.run_lock import RunLock, live_run_ids
from model.errors import EmulationError
from model.fabric.spec import FabricSpec
from testbed.nodes.gpu_proxies import ProxyKind

Tell = Callable[[str], None]


def on_standard_error(sentence: str) -> None:
    """Print a sentence for people."""
    print(f"railbed: {sentence}", file=sys.stderr)


@contextmanager
def reporting_other_runs(
    lock: RunLock, tell: Tell = on_standard_error, known: set[str] | None = None
) -> Iterator[None]:
    """Report other live runs at the beginning and at the end of the context.

    The report at the end tells the earlier of two runs of the later one. Runs in `known` are not
    reported again; reported runs are added to it.
    """
    known = set() if known is None else known
    _report_other_runs(lock, tell, known)
    yield
    # A failed search for other runs must not discard the measurement.
    with suppress(EmulationError):
        _report_other_runs(lock, tell, known)


@contextmanager
def experiment_beside_others(
    spec: FabricSpec,
    kind: ProxyKind,
    run_id: str,
    tell: Tell = on_standard_error,
    known: set[str] | None = None,
) -> Iterator[Experiment]:
    """Bring a fabric up as `experiment` does, and report other runs at both ends of the context."""
    with (
        experiment(spec, kind, run_id) as fabric,
        reporting_other_runs(fabric.lock, tell, known),
    ):
        yield fabric


def _report_other_runs(lock: RunLock, tell: Tell, known: set[str]) -> None:
    others = live_run_ids() - {lock.run_id} - known
    if others:
        known.update(others)
        tell(f"other runs disturb this one, and it disturbs them: {', '.join(sorted(others))}")
