"""The Docker Engine's own processes, from /proc: an engine that hangs tells nothing itself."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from linux.processes.run_lock import RUNS

# Of the engine itself; and the parent process of each container, cut to 15 characters (proc(5)).
DAEMONS, SHIM = ("dockerd", "containerd"), "containerd-shim"


@dataclass(frozen=True)
class EngineProcess:
    """A process of the engine; of a shim also its container, with run and name if it is ours."""

    name: str
    process_id: int
    state: str
    container_id: str = ""
    run_id: str = ""
    container: str = ""


def container_name(run_id: str, gpu: str) -> str:
    """The name of a GPU's container."""
    return f"railbed-{run_id}-{gpu}"


def engine_processes() -> Iterator[EngineProcess]:
    """Yield the daemons of the engine, and the shims of all containers.

    An engine inside of a container is another one: its processes have a PID namespace of their own,
    so each has more than one process id (`NSpid`, proc(5)).
    """
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            status = (entry / "status").read_text()
            name, state, ids = re.findall(r"^(?:Name|State|NSpid):\t(.*)$", status, re.MULTILINE)
            if name in (*DAEMONS, SHIM) and len(ids.split()) == 1:
                container = _container(entry / "cwd") if name == SHIM else ()
                yield EngineProcess(name, int(entry.name), state, *container)


def _container(bundle: Path) -> tuple[str, ...]:
    """The id of a shim's container, and the run id and name of one of ours (OCI runtime-spec)."""
    container_id = bundle.readlink().name
    configuration = json.loads((bundle / "config.json").read_text())
    for place in (Path(mount.get("source", "")) for mount in configuration.get("mounts", ())):
        if place.is_relative_to(RUNS):
            run_id = place.relative_to(RUNS).parts[0]
            return container_id, run_id, container_name(run_id, configuration["hostname"])
    return (container_id,)


def containers_seen(but_of: Collection[str] = ()) -> dict[str, str]:
    """Map the ids of the running containers of runs, but of some, to their names."""
    shims = (one for one in engine_processes() if one.run_id and one.run_id not in but_of)
    return {one.container_id: one.container for one in shims}


def stopped_holder(container_id: str = "") -> str:
    """Name the stopped process, its shim or else a daemon, that keeps a container; may be empty."""
    stopped = [one for one in engine_processes() if one.state.startswith("T")]
    for holder in (container_id, ""):
        for one in stopped:
            if one.container_id == holder:
                return f"held by {one.name}, process {one.process_id}, state {one.state}"
    return ""


def by_holder(names: Mapping[str, str], why: str = "") -> str:
    """Say which stopped process holds these containers, given by their ids, or `why` none does."""
    held: dict[str, list[str]] = {}
    for container_id, name in names.items():
        held.setdefault(stopped_holder(container_id) or why, []).append(name)
    return "; ".join(f"{', '.join(some)} ({cause})" for cause, some in held.items() if cause)


def stopped_processes() -> str:
    """Name the stopped processes and what of runs they hold, for a message's end; may be empty."""
    said = by_holder(containers_seen() or {"": "the engine"})
    return f"; stopped: {said}" if said else ""
