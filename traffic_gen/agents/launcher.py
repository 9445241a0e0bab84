"""Fork the agents of all GPU proxies that are processes from one program.

Each agent gets its own network namespace and is named after its GPU, the folder of its socket.
Agents share unmodified memory, and none has to load Python again: a hundred start in the time of
ten.

    launcher.py PROCESS_IDS SOCKET...

It writes the process ids to a file, a JSON object by socket, and keeps running; when it ends, all
agents end. An agent's log is beside its socket. Like `agent.py`, it needs only
Python's standard library.
"""

import ctypes
import gc
import importlib
import json
import os
import signal
import sys
from pathlib import Path
from types import ModuleType

CLONE_NEWNET = 0x40000000  # sched.h
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15  # linux/prctl.h
_libc = ctypes.CDLL(None, use_errno=True)


def main(process_ids: Path, sockets: list[Path]) -> None:
    """Start all agents, write their process ids to a file, and wait for signals."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    agent = importlib.import_module("traffic_gen.agents.agent")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps children
    gc.freeze()
    started = {str(path): _fork(agent, path) for path in sockets}
    unnamed = process_ids.with_suffix(".new")
    unnamed.write_text(json.dumps(started))
    unnamed.rename(process_ids)
    while True:
        signal.pause()


def _fork(agent: ModuleType, path: Path) -> int:
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(path.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())
    _checked(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if os.getppid() != parent:
        raise SystemExit("parent process has ended")
    _checked(_libc.prctl(PR_SET_NAME, path.parent.name.encode(), 0, 0, 0), "prctl")
    _checked(_libc.unshare(CLONE_NEWNET), "unshare")
    agent.serve(str(path))
    raise SystemExit


def _checked(result: int, call: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
