"""The command line of a fabric that is up: Mininet's, with Railbed's commands beside it."""

from collections.abc import Sequence
from contextlib import closing

from rich.console import Console

from execution.cases.emulation import Experiment
from execution.session.commands import Commands
from execution.session.session import FaultSeen, Session
from model.fabric.topology import LinkKind, Topology
from model.sentences import counted
from scenarios.scenario import Scenario
from testbed.fabric.command_line import open_command_line


class Audience:
    """Follows a session beside its command line, or gives commands, too; this one looks away."""

    def follow(self, session: Session, commands: Commands) -> None:
        """The session begins."""

    def changed(self, session: Session) -> None:
        """A fault has begun or is being undone."""

    def said(self, text: str) -> None:
        """A command has answered."""

    def saw(self, seen: FaultSeen) -> None:
        """A fault has begun, and the fabric has answered it."""

    def ended(self) -> None:
        """The command line has ended; the audience gives no further commands."""


def serve(fabric: Experiment, scenario: Scenario, out: Console, audience: Audience) -> None:
    """Serve the command line until its user exits; lasting faults end with the fabric."""

    def say(text: str) -> None:
        out.print(text, soft_wrap=True)
        out.file.flush()
        audience.said(text)

    cases = scenario.cases_on(fabric.topology.spec.kind)
    with closing(Session(fabric, fabric.lock.folder / "probes", audience.changed)) as session:
        commands = Commands(session, cases, say, audience.saw)
        welcome = greeting(scenario.name, fabric.topology, list(commands.workloads))
        audience.follow(session, commands)
        try:
            open_command_line(fabric.bed.network, welcome, commands.all())
        finally:
            audience.ended()
            commands.stop()


def greeting(scenario: str, topology: Topology, workloads: list[str]) -> str:
    """Describe the fabric, the names of its nodes, and the first commands to try."""
    spec, gpus, job = topology.spec, topology.gpus, topology.job_gpus
    near, there = job[0], [gpu for gpu in job if gpu.domain == 1] or job[1:]
    on_rail, far = there[0], there[-1]
    shape = f"{counted(spec.domains, 'HB domain')} of {counted(spec.domain_size, 'GPU')}"
    nic = topology.link_of(near, LinkKind.NIC).name
    hb_leaves = topology.hb_leaves
    leaves = f"\n  {_span(hb_leaves):24} leaf HB switches below them" if hb_leaves else ""
    execute = f"run {workloads[0]}" if workloads else f"iperf {near.name} {far.name}"
    return f"""
The {spec.kind} fabric of {scenario} is up: {shape}{spec.remarks}, \
{len(topology.rail_switches)} rail and {len(topology.spine_switches)} spine switches.
  {_span([gpu.name for gpu in gpus]):24} GPUs: domain, and local rank, which is the rail
  {_span(topology.hb_switches):24} HB switches, one for each domain{leaves}
  {_span(topology.openflow_switches):24} rail and spine switches
  {nic:24} a link: both its ends, the one nearer to the GPU first

Try:
  {near.name} ping -c 3 {far.name}
  fault {nic}      then: paths {near.name} {on_rail.name}, heal
  {execute}

help lists all commands, Mininet's too; exit takes the fabric down."""


def _span(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]}"
