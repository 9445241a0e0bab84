"""Railbed's agents on the hosts of a plain Mininet fabric: the same traffic on both testbeds."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from linux.network.namespaces import namespace_of
from linux.processes.lifetime import running, wait_for
from linux.processes.run_lock import RunLock
from testbed.nodes.gpu_proxies import ARCHIVE, pack_agent

START_DEADLINE_S = 30


@contextmanager
def plain_agents(process_ids: Sequence[int], agent: Path, lock: RunLock) -> Iterator[list[Path]]:
    """Run the program `agent` in each host's namespace; yield the agents' sockets, by rank."""
    folder = lock.folder / "plain-agents"
    folder.mkdir()
    archive = folder / ARCHIVE
    pack_agent(agent, archive)
    sockets = [folder / f"{rank}.sock" for rank in range(len(process_ids))]
    with ExitStack() as stack:
        for process_id, path in zip(process_ids, sockets, strict=True):
            command = [sys.executable, "-IS", str(archive), str(path)]
            with namespace_of(process_id):
                stack.enter_context(running(command, path.with_suffix(".log"), lock.environment))
        for path in sockets:
            wait_for(path.exists, f"the agent at {path.name} starts", START_DEADLINE_S)
        yield sockets
