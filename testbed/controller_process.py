"""The controller as a process of its own: its files, its start, its journal."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from model.topology import Topology
from testbed.marks import Mark
from testbed.processes import Watch, running, wait_for
from testbed.proxies import Proxy

READY_DEADLINE_S = 60
ROOT = Path(__file__).resolve().parent.parent


@contextmanager
def controller(
    topology: Topology, proxies: dict[str, Proxy], mark: Mark, watch: Watch
) -> Iterator[Path]:
    """Start the controller in the present namespace; gives the path of its journal."""
    folder = mark.folder / "controller"
    folder.mkdir()
    fabric, hosts = folder / "fabric.json", folder / "proxies.json"
    journal, log = folder / "journal.jsonl", folder / "controller.log"
    fabric.write_text(json.dumps(asdict(topology.spec)))
    hosts.write_text(json.dumps({name: proxy.process_id for name, proxy in proxies.items()}))
    arguments = ["--fabric", fabric, "--proxies", hosts, "--journal", journal]
    command = [sys.executable, "-m", "controller", *map(str, arguments)]
    environment = {**mark.environment, "PYTHONPATH": str(ROOT)}
    with running(command, log, environment) as process:
        watch.add("the controller", process.pid, log)
        yield journal


def wait_until_listening(journal: Path, watch: Watch) -> None:
    """Wait until switches can connect: one that is refused waits a second until it tries again."""
    _wait_for_event("listening", journal, watch)


def wait_until_ready(journal: Path, watch: Watch) -> None:
    """Wait until every switch has confirmed its rules and every proxy has its routes."""
    _wait_for_event("ready", journal, watch)


def _wait_for_event(event: str, journal: Path, watch: Watch) -> None:
    def seen() -> bool:
        watch.check()
        return any(line["event"] == event for line in read_journal(journal))

    wait_for(seen, f"the controller: {event}", READY_DEADLINE_S)


def read_journal(journal: Path) -> list[dict[str, object]]:
    """What the controller has done, oldest first; a line that is still being written is left."""
    if not journal.exists():
        return []
    lines = journal.read_text().split("\n")[:-1]
    return [json.loads(line) for line in lines]
