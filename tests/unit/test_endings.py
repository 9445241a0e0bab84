"""Ends of processes: of those that are waited for, and of the one that waits."""

import os
import resource
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from execution.sweep import executor
from execution.sweep.executor import LocalExecutor, Order
from linux.machine import resources
from linux.processes import lifetime
from linux.processes.lifetime import (
    Watch,
    dies_with_us,
    output_of,
    running,
    wait_until_begun,
    wait_until_ended,
)
from linux.processes.threads import THREADS, in_threads
from model.errors import EXIT_INTERRUPTED, EmulationError, NotReady
from studies.benchmarks.soak import SOUGHT, summary
from testbed.nodes import docker_engine
from testbed.nodes.docker_engine import EngineWatch, engine_watched
from tests.machine import wait_until
from tests.unit.programs import executed

ROOT = Path(__file__).parents[2]
SLEEP = ["sleep", "60"]


def test_a_command_does_not_begin_after_the_end_of_who_started_it(tmp_path: Path) -> None:
    """The shell stands for another process, which inherits the orphan."""
    begun = tmp_path / "begun"
    command = dies_with_us(["touch", str(begun)])
    subprocess.run(["sh", "-c", f"{shlex.join(command)}; true"], check=True)
    assert not begun.exists()
    subprocess.run(command, check=True)
    assert begun.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_children_of_a_command_end_with_who_started_it(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The command is a script, as the one that builds an image; its child catches the signal.

    Short sleeps, as Bash calls a trap behind them, and one that just begins may miss the signal.
    """
    script = tmp_path / "script"
    script.write_text(f"""#!/bin/bash
        bash -c 'trap "touch {tmp_path}/cleaned; exit 1" INT; echo begun
            for _ in {{1..600}}; do sleep 0.1; done'
    """)
    script.chmod(0o755)
    program = f"from linux.processes.lifetime import exit_code_of\nexit_code_of('{script}')"
    command, environment = (
        [sys.executable, "-P", "-c", program],
        {**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "begun\n"
        starter.send_signal(number)
        wait_until((tmp_path / "cleaned").exists, "the child has caught the signal", 10)


@pytest.mark.parametrize(
    ("script", "how"), [("kill -XFSZ $$", "died of SIGXFSZ"), ("exit 3", "exit code 3")]
)
def test_a_command_that_fails_without_a_word_says_how(script: str, how: str) -> None:
    """`ulimit -f` ends those that write a larger file."""
    with pytest.raises(EmulationError, match=f"^sh failed: {how}$"):
        output_of("sh", "-c", script)


def test_the_exit_code_of_a_command_is_told() -> None:
    assert lifetime.exit_code_of("sh", "-c", "exit 3") == 3


def test_threads_share_a_watch(tmp_path: Path) -> None:
    """In `up`, a fault and a workload under way look at the same parts at once."""
    watch, wrong = Watch(), list[BaseException]()

    def look(number: int) -> None:
        try:
            for _ in range(300):
                watch.check()
                watch.add(f"part {number}", os.getpid(), tmp_path / "log")
                watch.forget(f"part {number}")
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=look, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    watch.close()
    assert wrong == []


def test_a_stopped_process_is_noticed_and_named(tmp_path: Path) -> None:
    watch, sleeping = Watch(), [subprocess.Popen(SLEEP) for _ in range(20)]
    try:
        for number, process in enumerate(sleeping):
            watch.add(f"part {number}", process.pid, tmp_path / "log")
        for _ in sleeping:
            watch.check()
        os.kill(sleeping[13].pid, signal.SIGSTOP)

        def noticed() -> bool:
            try:
                watch.check()
            except EmulationError as error:
                return f"part 13 (process {sleeping[13].pid}) is stopped" in str(error)
            return False

        wait_until(noticed, "the stopped process is noticed", 5)
    finally:
        watch.close()
        for process in sleeping:
            process.kill()
            process.wait()


def test_a_command_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetime, "CHECK_EVERY_S", 0.01)
    with pytest.raises(EmulationError, match=r"sleep: did not end within 0\.05 s"):
        output_of(*SLEEP, timeout_s=0.05)


def test_a_program_that_does_not_tell_its_version_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetime, "ANSWER_S", 0.05)
    assert lifetime.first_line(*SLEEP) == "no answer within 0.05 s"


def test_the_cause_why_a_command_does_not_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetime, "CHECK_EVERY_S", 0.01)

    def check() -> None:
        raise EmulationError("Open vSwitch is stopped")

    with pytest.raises(EmulationError, match="Open vSwitch is stopped"):
        output_of(*SLEEP, check=check)


def test_a_command_that_is_stopped_is_not_waited_for() -> None:
    with pytest.raises(EmulationError, match=r"sh \(process \d+\) is stopped by a signal"):
        output_of("sh", "-c", "kill -STOP $$")


def test_a_child_that_is_stopped_is_not_waited_for(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running(SLEEP, log, {}) as child:
        os.kill(child.pid, signal.SIGSTOP)
        with pytest.raises(EmulationError, match=r"the part \(process \d+\) is stopped"):
            wait_until_begun(child, lambda: False, "the part", log, 60)
        with pytest.raises(EmulationError, match=r"the part \(process \d+\) is stopped"):
            wait_until_ended(child, "the part", log, 60)


def test_a_child_that_does_not_start_or_end_well_is_told_with_its_last_words(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    with running(["sh", "-c", "echo no room; exit 3"], log, {}) as child:
        with pytest.raises(
            EmulationError, match="the part: did not start; its log ends with:\nno room"
        ):
            wait_until_begun(child, lambda: False, "the part", log, 60)
        with pytest.raises(EmulationError, match="the part: failed; its log ends with:\nno room"):
            wait_until_ended(child, "the part", log, 60)


KILLED = """
import os, signal, sys
from pathlib import Path
from linux.processes.lifetime import Watch, reaper
with reaper(["touch", sys.argv[1]], Path(sys.argv[2]), {}, Watch()):
    if sys.argv[3] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("end", ["in order", "killed"])
def test_a_reaper_acts_if_the_run_is_killed_and_only_then(tmp_path: Path, end: str) -> None:
    reaped, log = tmp_path / "reaped", tmp_path / "log"
    command = [sys.executable, "-P", "-c", KILLED, str(reaped), str(log), end]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60)
    assert done.returncode == (-signal.SIGKILL if end == "killed" else 0)
    if end == "killed":
        wait_until(reaped.exists, "the reaper has acted")
    assert reaped.exists() == (end == "killed")


def test_a_point_that_hangs_does_not_hold_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_command", lambda _: SLEEP)
    order = Order(tmp_path / "scenario.yaml", tmp_path, (), 0.05)
    ((_, outcome),) = LocalExecutor().execute(iter([order]))
    assert (outcome.exit_code, outcome.run) == (124, None)
    assert outcome.cause == "its run did not end within 0.000833 min, and was killed"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A socket in the place of the Docker Engine, which accepts connections and says nothing."""
    place = tmp_path / "docker.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{place}")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        listening.listen()
        yield listening


def test_the_end_of_the_docker_engine_is_noticed(engine: socket.socket) -> None:
    watch = Watch()
    with engine_watched(watch):
        accepted, _ = engine.accept()
        watch.check()
        accepted.close()
        engine.close()
        with pytest.raises(EmulationError, match=docker_engine.GONE):
            watch.check()
    watch.close()


def test_a_docker_engine_that_hangs_is_noticed_by_its_missing_answers(
    engine: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_engine, "PING_EVERY_S", 0)
    monkeypatch.setattr(docker_engine, "HANGS_AFTER_S", 0.05)
    watched = EngineWatch()
    accepted, _ = engine.accept()

    def hangs() -> bool:
        try:
            watched.check()
        except EmulationError as error:
            return str(error) == docker_engine.HANGS
        return False

    def is_asked() -> bool:
        return not hangs() and bool(select.select([accepted], [], [], 0)[0])

    with closing(watched), accepted:
        for _ in range(3):  # an engine that answers goes on
            wait_until(is_asked, "the engine is asked", 5)
            assert accepted.recv(100) == docker_engine.PING
            accepted.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK")
        wait_until(hangs, "the silence is noticed", 5)


def test_a_docker_engine_that_hangs_is_not_waited_for(
    engine: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_engine, "PING_DEADLINE_S", 0.1)
    with pytest.raises(NotReady, match=r"Docker Engine: no answer .*timed out"):
        docker_engine.docker_client()


def test_work_that_never_ends_is_left_alone() -> None:
    never, begun = threading.Event(), []

    def work(number: int) -> None:
        begun.append(number)
        never.wait()

    def check() -> None:
        if len(begun) == THREADS:
            raise EmulationError("the engine hangs")

    with pytest.raises(EmulationError, match="the engine hangs"):
        in_threads(work, range(THREADS + 2), check)
    never.set()
    assert sorted(begun) == list(range(THREADS))


def test_work_in_threads_keeps_its_order_and_its_errors() -> None:
    numbers = range(1, 3 * THREADS)
    assert in_threads(lambda number: 1 / number, numbers, lambda: None) == [1 / n for n in numbers]
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda number: 1 / number, range(3), lambda: None)


def test_too_many_gpus_for_the_limit_of_open_files_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    with pytest.raises(NotReady, match="hard limit of a process is 4096; raise it with `ulimit"):
        resources.provide_files(2048)


def test_a_limit_that_no_fabric_meets_names_no_number_of_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    with pytest.raises(NotReady, match=r"raise it with `ulimit -Hn 116`$"):
        resources.provide_files(4)


@pytest.mark.parametrize(("gpus", "soft"), [(16, 1024), (512, 512 * 3 + 100)])
def test_the_limit_of_open_files_is_raised_as_far_as_a_fabric_needs(
    gpus: int, soft: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limits.append(wanted))
    resources.provide_files(gpus)
    assert limits[-1] == (soft, 4096)


@pytest.mark.parametrize("found", SOUGHT)
def test_a_soak_that_finds_something_does_not_pass(found: str) -> None:
    assert summary(Counter(rounds=9), 1.0, 1)["judged_right"] is True
    assert summary(Counter({"rounds": 9, found: 1}), 1.0, 1)["judged_right"] is False


def test_an_interruption_before_the_command_listens_has_no_traceback() -> None:
    program = (
        "import os, signal, commands.__main__; os.kill(os.getpid(), signal.SIGINT); print('late')"
    )
    done = executed(program)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


# A command in which a library answers to an interruption with an error of its own.
ENDED_IN_A_LIBRARY = """
import os, signal, sys
from commands import app as commands
from model.errors import EmulationError

def command(*_, **__):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except KeyboardInterrupt:
        raise {error}

commands.app = command
commands.main()
"""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("RuntimeError('of a library')", "interrupted; everything was taken down\n"),
        (
            "EmulationError('process 7: did not end')",
            "interrupted; then process 7: did not end\n"
            "(`sudo ./railbed clean` removes what is left)\n",
        ),
    ],
)
def test_an_error_after_an_interruption_is_neither_a_bug_nor_a_failure(
    error: str, told: str
) -> None:
    done = executed(ENDED_IN_A_LIBRARY.format(error=error))
    assert done.returncode == EXIT_INTERRUPTED
    assert done.stderr == f"railbed: {told}"


def test_an_interruption_before_the_command_is_told_in_a_sentence() -> None:
    program = (
        "import os, signal, sys, commands.app as commands\n"
        "commands._widen_help = lambda: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.argv = ['railbed', '--help']\n"
        "commands.main()"
    )
    done = executed(program)
    told = "railbed: interrupted; everything was taken down\n"
    assert (done.returncode, done.stderr) == (EXIT_INTERRUPTED, told)


def test_an_interruption_of_the_end_changes_nothing() -> None:
    program = (
        "import atexit, os, signal, sys, commands.app as commands\n"
        "from linux.processes.interruptions import repeat_swallowed\n"
        "atexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
        "repeat_swallowed()\n"
        "sys.argv = ['railbed', '--version']\n"
        "commands.main()"
    )
    done = executed(program)
    assert (done.returncode, done.stderr) == (0, "")
