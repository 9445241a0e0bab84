"""Executors of runs: several at once on this machine, and runs of lost machines elsewhere."""

import io
import os
import signal
import socket
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from execution.sweep import executor, ray_executor, ray_worker
from execution.sweep.executor import LocalExecutor, Order
from execution.sweep.ray_executor import ATTEMPTS, RayExecutor
from execution.virtual_clock.machines import machine_mib
from linux.files.program_files import program_version
from linux.processes.interruptions import interrupt
from model.errors import EmulationError, InputError, NotReady
from scenarios.library_files import LIBRARY
from scenarios.load import load


def orders(folder: Path, count: int, at_most_s: float = 60.0) -> Iterator[Order]:
    for number in range(1, count + 1):
        place = folder / f"{number:03}"
        place.mkdir()
        (place / "scenario.yaml").write_text(f"scenario {number}\n")
        yield Order(place / "scenario.yaml", place, (), at_most_s)


Commands = Callable[[str], None]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Sets the shell command that stands for a run, in the folder of its order."""

    def set_command(script: str) -> None:
        words = ["sh", "-c", f'cd "$0" && {script}']
        monkeypatch.setattr(executor, "_command", lambda order: [*words, str(order.folder)])

    return set_command


def test_runs_at_once_meet(tmp_path: Path, command: Commands) -> None:
    os.mkfifo(tmp_path / "meeting")
    # Opening a FIFO waits for its other end, fifo(7): alone, no run would end.
    command('if [ "$(basename "$0")" = 001 ]; then cat ../meeting; else echo met >../meeting; fi')
    ended = dict(LocalExecutor(2).execute(orders(tmp_path, 2)))
    assert {outcome.exit_code for outcome in ended.values()} == {0}
    assert (tmp_path / "001" / "log.txt").read_text() == "met\n"


def test_a_run_may_take_longer_than_the_kernel_waits_at_once(
    tmp_path: Path, command: Commands
) -> None:
    command("exit 0")
    ((_, outcome),) = LocalExecutor().execute(orders(tmp_path, 1, 1e9))
    assert outcome.exit_code == 0


def test_a_run_may_take_as_long_as_its_faults(tmp_path: Path) -> None:
    plain = (LIBRARY / "abort-and-restart.yaml").read_text()
    long = plain.replace("strategy:", "restart_time: 3600\n  strategy:")
    at_most_s = []
    for name, text in (("plain", plain), ("long", long)):
        place = tmp_path / f"{name}.yaml"
        place.write_text(text)
        at_most_s.append(executor.at_most_s(load(place), ()))
    cases = len(load(tmp_path / "long.yaml").cases)
    assert at_most_s[1] - at_most_s[0] == pytest.approx(cases * 3599.5)


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_an_order_is_taken_when_there_is_room(
    tmp_path: Path, command: Commands, at_once: int
) -> None:
    command("exit 4")
    taken = []

    def noted() -> Iterator[Order]:
        for order in orders(tmp_path, 4):
            taken.append(order)
            yield order

    for number, (_, outcome) in enumerate(LocalExecutor(at_once).execute(noted())):
        assert len(taken) == min(4, at_once + number)
        assert (outcome.exit_code, outcome.run) == (4, None)
        assert outcome.cause == "(an empty log)"


def test_a_run_that_died_before_its_state_was_written_has_a_cause(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("railbed: no room\n")
    died = tmp_path / "run"
    died.mkdir()
    assert "state.json" in executor.cause(4, died, log, 60)


@pytest.mark.parametrize("exit_code", [1, 3, 4])
def test_a_run_without_a_folder_does_not_have_that_of_an_earlier_attempt(
    tmp_path: Path, command: Commands, exit_code: int
) -> None:
    command(f"echo 'railbed: no space left on device' >&2; exit {exit_code}")
    (order,) = orders(tmp_path, 1)
    earlier = order.folder / "run"
    earlier.mkdir()
    (earlier / "state.json").write_text('{"state": "incomplete", "cause": "interrupted"}')
    again = replace(order, earlier=(earlier,))
    ((_, outcome),) = LocalExecutor().execute(iter([again]))
    assert (outcome.run, outcome.cause) == (None, "no space left on device")
    ((_, outcome),) = LocalExecutor().execute(iter([order]))
    assert (outcome.run, outcome.cause) == (earlier, "interrupted")


def test_runs_under_way_are_taken_down(tmp_path: Path, command: Commands) -> None:
    command(
        'if [ "$(basename "$0")" != 001 ]; then trap "echo down; exit" TERM; sleep 60 & wait; fi'
    )
    ended = LocalExecutor(3).execute(orders(tmp_path, 3))
    first, _ = next(ended)
    assert first.folder.name == "001"
    ended.close()
    said = [(tmp_path / name / "log.txt").read_text() for name in ("002", "003")]
    assert all(text in ("down\n", "Terminated\n", "") for text in said)


class RayError(Exception):
    """A machine or a worker process was lost."""


class RayTaskError(RayError):
    """The function raised an exception."""

    cause = ValueError("no such file")


def packed() -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        entry = tarfile.TarInfo("run-1/state.json")
        content = b'{"state": "complete"}'
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()


@dataclass
class FakeRay:
    """A cluster; `losses` has how often each machine loses a run, by machine and scenario."""

    machines: dict[str, dict[str, float]]
    loses: Callable[[str, str], bool] = lambda machine, scenario: False
    silent: str = ""
    done: list[tuple[str, str]] = field(default_factory=list)
    most: int = 0
    cancelled: list[Any] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    under_way: list[Any] = field(default_factory=list)

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)
    util = SimpleNamespace(
        scheduling_strategies=SimpleNamespace(
            NodeAffinitySchedulingStrategy=lambda machine, soft: machine
        )
    )

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"Alive": True, "NodeID": name, "Resources": resources}
            for name, resources in self.machines.items()
        ]

    def remote(self, scheduling_strategy: str, **_: Any) -> Callable[[Any], Any]:
        def sent(_program: str, _digest: str, _name: str, text: str, *_: Any) -> Any:
            self.under_way.append((scheduling_strategy, text.strip()))
            self.most = max(self.most, len(self.under_way))
            return self.under_way[-1]

        return lambda function: SimpleNamespace(remote=sent)

    def wait(self, tasks: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        ended = [task for task in tasks if task[0] != self.silent][:1]
        return ended, [task for task in tasks if task not in ended]

    def get(self, task: Any) -> dict[str, Any]:
        self.under_way.remove(task)
        machine, text = task
        if self.loses(machine, text):
            raise RayError
        self.done.append(task)
        return {"exit_code": 0, "log": f"{machine}\n", "runs": packed()}

    def shutdown(self) -> None:
        self.machines.clear()

    def cancel(self, task: Any) -> None:
        self.cancelled.append(task)


Cluster = Callable[..., RayExecutor]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    def made(
        ray: FakeRay, clock: str = "real", most: int | None = None, gpus: int = 16
    ) -> RayExecutor:
        monkeypatch.setattr(ray_executor, "connected", lambda address: ray)
        return RayExecutor("auto", clock, gpus, most, ray.said.append)

    return made


MEMORY = 8 * machine_mib(16) * 2**20
FOUR_CORES = {"CPU": 4.0, "memory": MEMORY}


def test_each_machine_has_one_run_by_the_real_clock(tmp_path: Path, cluster: Cluster) -> None:
    ray = FakeRay({"a": FOUR_CORES, "b": FOUR_CORES, "without": {"memory": MEMORY}})
    ended = dict(cluster(ray).execute(orders(tmp_path, 5)))
    assert {order.folder.name for order in ended} == {f"{number:03}" for number in range(1, 6)}
    assert (ray.most, {machine for machine, _ in ray.done}) == (2, {"a", "b"})
    assert all(outcome.cause == "" for outcome in ended.values())
    assert (tmp_path / "001" / "run-1" / "state.json").is_file()


@pytest.mark.parametrize(("most", "at_once"), [(None, 6), (3, 5), (1, 2)])
def test_machines_have_as_many_runs_as_fit_by_the_virtual_clock(
    tmp_path: Path, cluster: Cluster, most: int | None, at_once: int
) -> None:
    small = {"CPU": 4.0, "memory": 2 * machine_mib(16) * 2**20}
    ray = FakeRay({"a": FOUR_CORES, "b": small})
    found = cluster(ray, "virtual", most)
    assert found.at_once == at_once
    assert len(dict(found.execute(orders(tmp_path, 8)))) == 8
    assert ray.most == at_once


def test_runs_of_large_fabrics_need_more_memory(cluster: Cluster) -> None:
    ray = FakeRay({"a": FOUR_CORES | {"memory": 2 * machine_mib(1024) * 2**20}})
    assert [cluster(ray, "virtual", gpus=gpus).at_once for gpus in (16, 1024)] == [4, 2]


def test_runs_of_a_lost_machine_go_to_another(tmp_path: Path, cluster: Cluster) -> None:
    ray = FakeRay({"a": FOUR_CORES, "b": FOUR_CORES}, lambda machine, _: machine == "a")
    ended = dict(cluster(ray).execute(orders(tmp_path, 4)))
    assert [outcome.cause for outcome in ended.values()] == [""] * 4
    assert {machine for machine, _ in ray.done} == {"b"}


def test_a_machine_that_does_not_tell_of_its_run_is_lost(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It should have ended the run long ago; nothing is waited for without end."""
    monkeypatch.setattr(ray_executor, "ANSWER_S", -60.0)
    ray = FakeRay({"a": FOUR_CORES, "b": FOUR_CORES}, silent="a")
    ended = dict(cluster(ray).execute(orders(tmp_path, 3)))
    assert [outcome.cause for outcome in ended.values()] == [""] * 3
    assert ray.cancelled == [("a", "scenario 1")]
    assert {machine for machine, _ in ray.done} == {"b"}


def test_a_run_that_kills_its_machines_is_given_up(tmp_path: Path, cluster: Cluster) -> None:
    ray = FakeRay(dict.fromkeys("abcde", FOUR_CORES), lambda _, text: text == "scenario 1")
    ended = {o.folder.name: outcome for o, outcome in cluster(ray).execute(orders(tmp_path, 9))}
    assert ended.pop("001").cause == f"its machine was lost {ATTEMPTS} times"
    told = [line for line in ray.said if line.startswith("001: ")]
    assert told == ["001: its machine was lost; it runs on another one"] * (ATTEMPTS - 1)
    assert [outcome.cause for outcome in ended.values()] == [""] * 8


def test_a_cluster_without_machines_is_an_error(tmp_path: Path, cluster: Cluster) -> None:
    ray = FakeRay({"a": FOUR_CORES}, lambda *_: True)
    with pytest.raises(EmulationError, match="no machine of the cluster"):
        list(cluster(ray).execute(orders(tmp_path, 1)))


def test_runs_on_a_cluster_are_cancelled(tmp_path: Path, cluster: Cluster) -> None:
    ray = FakeRay(dict.fromkeys("abc", FOUR_CORES))
    ended = cluster(ray).execute(orders(tmp_path, 5))
    next(ended)
    ended.close()
    assert len(ray.cancelled) == 2


@given(lost=st.sets(st.tuples(st.sampled_from("abc"), st.integers(1, 6))))
def test_every_run_ends_however_machines_are_lost(
    tmp_path_factory: pytest.TempPathFactory, lost: set[tuple[str, int]]
) -> None:
    def loses(machine: str, text: str) -> bool:
        return (machine, int(text.split()[1])) in lost

    ray = FakeRay({**dict.fromkeys("abc", FOUR_CORES), "safe": FOUR_CORES}, loses)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_executor, "connected", lambda address: ray)
        found = RayExecutor("auto", "real", 16, None, lambda line: None)
        ended = list(found.execute(orders(tmp_path_factory.mktemp("orders"), 6)))
    assert len(ended) == 6
    assert len({order for order, _ in ended}) == 6


def test_a_missing_ray_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr("linux.files.program_files.ROOT", Path("/my clone"))
    install = "`'/my clone/testbed/install_ray.sh'`"
    with pytest.raises(NotReady, match=f"Ray: not found; install it with {install}"):
        ray_executor.connected("auto")


@pytest.mark.parametrize("address", ["ray://127.0.0.1:10001", "local", "127.0.0.1", ""])
def test_an_address_that_ray_does_not_take_here_is_bad_input(address: str) -> None:
    with pytest.raises(InputError) as caught:
        ray_executor.connected(address)
    assert str(caught.value) == (
        f"--address: must be auto or HOST:PORT, got {address!r} (see docs/guides/sweeps.md)"
    )


class StubRay:
    """Ray, which finds a cluster at the address itself, and handles SIGTERM as Ray does."""

    def __init__(self, init: Callable[[], None] = lambda: None) -> None:
        self._init = init
        services = SimpleNamespace(canonicalize_bootstrap_address_or_die=lambda address: address)
        self._private = SimpleNamespace(services=services)
        self.cloudpickle = SimpleNamespace(register_pickle_by_value=lambda module: None)

    def init(self, *_: object, **__: object) -> None:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))
        self._init()


@pytest.fixture
def head() -> Iterator[str]:
    """The address of a port that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_nothing_is_asked_of_ray_where_nobody_listens(
    head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", StubRay(pytest.fail))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(NotReady) as caught:
        ray_executor.connected(closed)
    assert str(caught.value) == (
        f"Ray: no cluster at {closed}: [Errno 111] Connection refused (see `ray start`)"
    )


def no_cluster() -> None:
    raise ConnectionError("not of Ray")


@pytest.mark.parametrize("init", [lambda: None, no_cluster])
def test_sigterm_interrupts_also_when_ray_is_asked(
    head: str, monkeypatch: pytest.MonkeyPatch, init: Callable[[], None]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", StubRay(init))
    before = signal.getsignal(signal.SIGTERM)
    with suppress(NotReady):
        ray_executor.connected(head)
    assert signal.getsignal(signal.SIGTERM) == before


def test_sigterm_interrupts_also_while_ray_connects(
    head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminated = StubRay(lambda: signal.raise_signal(signal.SIGTERM))
    monkeypatch.setitem(sys.modules, "ray", terminated)
    before = signal.signal(signal.SIGTERM, lambda *_: interrupt(KeyboardInterrupt()))
    try:
        with pytest.raises(KeyboardInterrupt):
            ray_executor.connected(head)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_another_version_of_the_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "errors.py").write_text("")
    digest = program_version(tmp_path)
    (tmp_path / "model" / "errors.py").write_text("# changed")
    returned = ray_worker.execute(str(tmp_path), digest, "x", "", (), 60.0)
    assert returned["exit_code"] == 3
    assert f"must be version {digest}" in returned["log"]


def test_a_run_that_hangs_on_a_machine_of_the_cluster_is_ended(tmp_path: Path) -> None:
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexec sleep 600\n")
    python.chmod(0o755)
    version = program_version(tmp_path)
    returned = ray_worker.execute(str(tmp_path), version, "x", "", (), 0.5)
    assert returned["exit_code"] == 124
