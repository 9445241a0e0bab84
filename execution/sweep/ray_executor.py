"""Executor of runs on the machines of a Ray cluster; runs of a lost machine go to another one."""

import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

from execution.sweep import ray_worker
from execution.sweep.executor import Ended, Order
from execution.virtual_clock.machines import fitting, machine_mib
from linux.files import program_files, user_files
from model.errors import EmulationError, InputError, NotReady, Problem
from model.sweep import REAL
from results.store.sweeps import Outcome

# The folder where `testbed/install_ray.sh` installs Ray: the virtual machine gets no copy of it.
RAY = program_files.ROOT / ".venv" / "ray"
# The cluster of this machine, or the address of a cluster's head.
ADDRESS = re.compile(r"auto|(?!.*//).+:[0-9]{1,5}")
MOST_PORT, CONNECTED_WITHIN_S = 2**16 - 1, 10.0
MIB = 2**20
# Most attempts of a run whose machine is lost each time.
ATTEMPTS = 3
# Seconds between two questions to the cluster for new machines.
POLL_S = 1.0
TAKE_DOWN_S = 60.0
# Seconds after a run's limit, at which its machine ends it, until a silent machine is lost.
ANSWER_S = 900.0


def connected(address: str) -> Any:
    """Connect this process to the cluster, for good; return Ray.

    Raises `InputError` for a wrong address, `NotReady` without a cluster.
    """
    if not ADDRESS.fullmatch(address):
        what = f"must be auto or HOST:PORT, got {address!r}"
        raise InputError(Problem("--address", what, "see docs/guides/sweeps.md"))
    sys.path.append(str(RAY))
    try:
        import ray
    except ImportError:
        install = shlex.quote(f"{program_files.ROOT}/testbed/install_ray.sh")
        raise NotReady(f"Ray: not found; install it with `{install}`") from None
    try:
        head = ray._private.services.canonicalize_bootstrap_address_or_die(address)
        _require_listener(head)
        with _own_sigterm():
            ray.init(head, ignore_reinit_error=True, log_to_driver=False, logging_level="error")
    except (OSError, RuntimeError, ValueError) as error:
        what = str(error).partition("\n")[0]
        raise NotReady(f"Ray: no cluster at {address}: {what} (see `ray start`)") from None
    # Workers get the functions themselves: Railbed is not in their path.
    for module in (ray_worker, program_files, user_files):
        ray.cloudpickle.register_pickle_by_value(module)
    return ray


def _require_listener(head: str) -> None:
    """Raise `OSError` unless something listens there; Ray itself tries for a quarter of an hour.

    Raises `ValueError` for a port that is none.
    """
    host, _, port = head.rpartition(":")
    if int(port) > MOST_PORT:
        raise ValueError(f"a port is at most {MOST_PORT}, got {port}")
    with socket.create_connection((host.strip("[]"), int(port)), CONNECTED_WITHIN_S):
        pass


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Restore this program's handler of SIGTERM, in whose place `ray.init` exits with code 15."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, handler)
    except SystemExit:
        signal.raise_signal(signal.SIGTERM)


@dataclass(frozen=True)
class _Sent:
    order: Order
    machine: str
    begun_s: float

    def outcome(self, returned: dict[str, Any]) -> Outcome:
        """Write the returned files into the order's folder; return how the run ended."""
        user_files.write_text(self.order.log, returned["log"])
        folder = str(self.order.folder)
        extract = ["tar", "--extract", "--gzip", "--no-same-owner", "--directory", folder]
        subprocess.run(extract, input=returned["runs"], check=True)
        return self.order.outcome(returned["exit_code"], self.seconds)

    def failed(self, why: str) -> Outcome:
        """The outcome of a run that has returned nothing."""
        return Outcome(EmulationError.exit_code, None, self.seconds, why)

    @property
    def seconds(self) -> float:
        """Time since the run was sent."""
        return time.monotonic() - self.begun_s


class RayExecutor:
    """Executes orders on machines of a Ray cluster, which have the same Railbed in the same place.

    By the virtual clock, a machine has as many runs at once as fit, `most` at most; by the real
    clock, one. Fabrics have at most `gpus` GPUs. `say` is told of runs that go to another machine.
    """

    def __init__(
        self, address: str, clock: str, gpus: int, most: int | None, say: Callable[[str], None]
    ) -> None:
        self._ray = connected(address)
        self._clock, self._gpus, self._most, self._say = clock, gpus, most, say
        self._program = str(program_files.ROOT), program_files.program_version()
        # Lost machines, which get no more runs.
        self._gone: set[str] = set()

    @property
    def at_once(self) -> int:
        """The number of runs that fit on all machines."""
        return max(1, sum(self._slots().values()))

    def execute(self, orders: Iterator[Order]) -> Ended:
        """Execute runs; those of a lost machine are sent to another one."""
        under_way: dict[Any, _Sent] = {}
        lost: list[Order] = []
        losses: Counter[Order] = Counter()
        try:
            while True:
                self._fill(under_way, chain(_taken_from(lost), orders))
                if not under_way:
                    if next(chain(lost, orders), None) is None:
                        return
                    what = "Ray: no machine of the cluster has a CPU left for Railbed"
                    raise EmulationError(what)
                for task, outcome in self._outcomes(under_way):
                    sent = under_way.pop(task)
                    if outcome is None and losses[sent.order] < ATTEMPTS - 1:
                        losses[sent.order] += 1
                        lost.append(sent.order)
                        name = sent.order.folder.name
                        self._say(f"{name}: its machine was lost; it runs on another one")
                    else:
                        why = f"its machine was lost {ATTEMPTS} times"
                        yield sent.order, outcome or sent.failed(why)
        finally:
            tasks = list(under_way)
            for task in tasks:
                self._ray.cancel(task)
            if tasks:
                self._ray.wait(tasks, num_returns=len(tasks), timeout=TAKE_DOWN_S)
            self._ray.shutdown()

    def _slots(self) -> dict[str, int]:
        """How many runs each living machine of the cluster takes, by the machine's id."""
        alive = [node for node in self._ray.nodes() if node["Alive"]]
        sizes = {node["NodeID"]: self._slots_of(node["Resources"]) for node in alive}
        return {machine: size for machine, size in sizes.items() if machine not in self._gone}

    def _slots_of(self, resources: dict[str, float]) -> int:
        cores = int(resources.get("CPU", 0))
        if self._clock == REAL or cores == 0:
            return min(1, cores)
        memory_mib = resources.get("memory", 0) / MIB
        return min(fitting(cores, memory_mib, self._gpus), self._most or cores)

    def _fill(self, under_way: dict[Any, _Sent], orders: Iterator[Order]) -> None:
        """Send orders until no machine has room, or no order is left."""
        room = Counter(self._slots()) - Counter(sent.machine for sent in under_way.values())
        for machine, order in zip(room.elements(), orders, strict=False):
            task = self._send(order, machine)
            under_way[task] = _Sent(order, machine, time.monotonic())

    def _send(self, order: Order, machine: str) -> Any:
        affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        memory = 0 if self._clock == REAL else machine_mib(self._gpus) * MIB
        task = self._ray.remote(
            num_cpus=1,
            memory=memory,
            max_retries=0,
            scheduling_strategy=affinity(machine, soft=False),
        )(ray_worker.execute)
        text = order.scenario.read_text(encoding="utf-8")
        named = order.scenario.stem, text, order.options
        return task.remote(*self._program, *named, order.at_most_s)

    def _outcomes(self, under_way: dict[Any, _Sent]) -> list[tuple[Any, Outcome | None]]:
        """Wait for ends; return each task with how its run ended, `None` if its machine is lost."""
        ended, _ = self._ray.wait(list(under_way), num_returns=1, timeout=POLL_S)
        outcomes = [(task, self._outcome(task, under_way[task])) for task in ended]
        for task, sent in under_way.items():
            if task not in ended and sent.seconds > sent.order.at_most_s + ANSWER_S:
                self._ray.cancel(task)
                self._gone.add(sent.machine)
                outcomes.append((task, None))
        return outcomes

    def _outcome(self, task: Any, sent: _Sent) -> Outcome | None:
        errors = self._ray.exceptions
        try:
            return sent.outcome(self._ray.get(task))
        except errors.RayTaskError as error:
            return sent.failed(str(error.cause))
        except errors.RayError:
            self._gone.add(sent.machine)
            return None


def _taken_from(lost: list[Order]) -> Iterator[Order]:
    while lost:
        yield lost.pop(0)
