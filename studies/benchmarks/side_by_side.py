"""Compare Railbed and plain Mininet on one fabric and load: figures and their ratios.

Processor time is that of the whole machine, kernel threads and interrupts included.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

from linux.machine.processor import busy_s
from model.errors import EmulationError
from model.fabric.shaping import wire_bytes
from model.fabric.spec import FabricSpec
from traffic_gen.iperf3 import Flow

GIGABYTE = 1_000_000_000
RAILBED, MININET, RATIO = "railbed", "mininet", "railbed / mininet"
Figures = dict[str, float]


@dataclass
class CpuMeter:
    """Adds up the machine's processor time in windows, less its background load in cores."""

    background_cores: float
    read_s: Callable[[], float] = busy_s
    clock_s: Callable[[], float] = time.monotonic
    cpu_s: float = 0.0

    @contextmanager
    def window(self) -> Iterator[None]:
        """Count the processor time that is spent within the context."""
        begun_s, busy_before_s = self.clock_s(), self.read_s()
        yield
        elapsed_s = self.clock_s() - begun_s
        self.cpu_s += self.read_s() - busy_before_s - self.background_cores * elapsed_s


def measured_background_cores(duration_s: float) -> float:
    """Measure the machine's background load in cores, for `duration_s` seconds."""
    before_s = busy_s()
    time.sleep(duration_s)
    return (busy_s() - before_s) / duration_s


@dataclass(frozen=True)
class Execution:
    """One execution of a load: measured and modeled seconds, payload, processor seconds."""

    measured_s: float
    modeled_s: float
    payload_bytes: int
    cpu_s: float

    @property
    def error(self) -> float:
        """Relative error of the measured time against the modeled time."""
        return abs(self.measured_s / self.modeled_s - 1)

    @property
    def cpu_s_per_gigabyte(self) -> float:
        """Processor time of the machine for 10^9 bytes of payload."""
        return self.cpu_s / (self.payload_bytes / GIGABYTE)


def _modeled_s(flow: Flow, spec: FabricSpec) -> float:
    """Return the received bytes, headers included, over the rate of the links on the path.

    Raises `ValueError` for a pair that shares neither HB domain nor rail.
    """
    (from_domain, from_rail), (to_domain, to_rail) = (
        divmod(rank, spec.domain_size) for rank in flow.pair
    )
    if from_domain != to_domain and from_rail != to_rail:
        raise ValueError(f"{flow.pair}: not in one HB domain, and not on one rail")
    rate_bps = spec.emulated_hb_bps if from_domain == to_domain else spec.emulated_nic_bps
    return wire_bytes(flow.received_bytes) * 8 / rate_bps


def rounds_execution(rounds: Iterable[Sequence[Flow]], spec: FabricSpec, cpu_s: float) -> Execution:
    """Return the execution of a load that is sent in rounds, one after the other.

    A round lasts as long as its longest transfer. In a round, each host sends to one host and
    receives from one host: no two transfers share a link. Only the transfers' own time counts, not
    the start of processes; and all sent bytes count as payload, though the servers report fewer
    received bytes.
    """
    rounds = list(rounds)
    return Execution(
        measured_s=sum(max(flow.duration_s for flow in flows) for flows in rounds),
        modeled_s=sum(max(_modeled_s(flow, spec) for flow in flows) for flows in rounds),
        payload_bytes=sum(flow.sent_bytes for flows in rounds for flow in flows),
        cpu_s=cpu_s,
    )


def medians(executions: Sequence[Execution]) -> Figures:
    """Return a row's figures: medians of all executions, and the largest error."""
    return {
        "measured_s": median(execution.measured_s for execution in executions),
        "modeled_s": median(execution.modeled_s for execution in executions),
        "error": median(execution.error for execution in executions),
        "error_max": max(execution.error for execution in executions),
        "cpu_s_per_gigabyte": median(execution.cpu_s_per_gigabyte for execution in executions),
    }


def ratios(ours: Mapping[str, float], theirs: Mapping[str, float]) -> Figures:
    """Divide Railbed's figures by plain Mininet's, where less is better.

    Railbed is up when all is ready, so `up_s` is also divided by `connected_s`, the earlier time
    at which plain Mininet's switches are connected.
    """
    compared = {name: (name, name) for name in ("error", "cpu_s_per_gigabyte", "up_s")}
    compared["up_s_to_connected_s"] = ("up_s", "connected_s")
    return {
        f"{name}_ratio": ours[our] / theirs[their]
        for name, (our, their) in compared.items()
        if our in ours and their in theirs
    }


def side_by_side(
    row: Mapping[str, Any], railbed: Callable[[], Figures], mininet: Callable[[], Figures]
) -> Iterator[dict[str, Any]]:
    """Yield a row for each, and one of ratios; if plain Mininet fails, its row has the reason."""
    ours = railbed()
    yield {**row, "fabric": RAILBED, **ours}
    try:
        theirs = mininet()
    except EmulationError as error:
        yield {**row, "fabric": MININET, "failed": str(error)}
        return
    yield {**row, "fabric": MININET, **theirs}
    yield {**row, "fabric": RATIO, **ratios(ours, theirs)}
