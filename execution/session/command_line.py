"""The command line of a fabric that is up: Mininet's, with faults, workloads, paths and loads."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from math import isinf

from rich.console import Console

from execution.cases.emulation import Experiment
from execution.session.session import Executed, FaultSeen, LinkLoad, PathSeen, Session
from model.errors import InputError, Problem, RailbedError
from model.fabric.topology import Gpu, Hop, LinkKind, Topology
from model.faults import FINAL, POSSIBLE, Component, Fault, FaultMode, components
from model.sentences import counted
from model.workload.generator import Generator
from results.sections.section import number_or_dash, without_fabric
from results.verdicts.model_comparison import causes
from scenarios.format.faults import LEAST_LEFT_BPS, rate_problem
from scenarios.format.issues import did_you_mean
from scenarios.format.units import parse_rate
from scenarios.scenario import Case, Scenario
from testbed.fabric.command_line import Command, open_command_line

USAGE = "fault NAME [MODE [RATE]]"
WATCHED_S = 1.0
# Most links that `load` shows, the busiest first.
MOST_SHOWN = 16
# Link probes alone use a smaller share of a link than this.
LEAST_SHOWN_USE = 0.01
SWITCHES = (Component.RAIL_SWITCH, Component.SPINE_SWITCH, Component.HB_SWITCH)


def targets(topology: Topology) -> dict[str, Component]:
    """All components of a fabric that can fail, by their names."""
    return {name: kind for kind in Component for name in components(topology, kind)}


def modes(component: Component) -> tuple[FaultMode, ...]:
    """The modes in which a component can fail in a session: lasting ones that can be undone."""
    lasting = POSSIBLE[component] - {FaultMode.FLAP}
    return tuple(mode for mode in FaultMode if mode in lasting and (component, mode) not in FINAL)


def parse_fault(topology: Topology, words: Sequence[str]) -> Fault:
    """Parse the words of a fault; raises `InputError` with the mistake."""
    if not words:
        raise InputError(Problem("fault", f"needs the name of a component; usage: {USAGE}"))
    target, *rest = words
    component = require_target(topology, target)
    mode = _mode(component, rest[0] if rest else modes(component)[0])
    fault = Fault(component, mode, target, rate_bps=_rate_bps(topology, mode, rest[1:]))
    if what := rate_problem(topology, fault):
        raise InputError(Problem("fault", f"remaining rate {what}"))
    return fault


def require_target(topology: Topology, name: str) -> Component:
    """Return the kind of a component; raises `InputError` if the fabric has none of this name."""
    known = targets(topology)
    if name not in known:
        what = f"unknown component {name!r}{did_you_mean(name, tuple(known))}".rstrip(";")
        raise InputError(Problem("fault", what, "links are named as `links` shows them"))
    return known[name]


def _mode(component: Component, word: str) -> FaultMode:
    possible = modes(component)
    if word not in possible:
        hint = "use a scenario for this mode" if word in POSSIBLE[component] else ""
        what = f"mode of a {component} must be {', '.join(possible)}, got {word!r}"
        raise InputError(Problem("fault", what, hint))
    return FaultMode(word)


def _rate_bps(topology: Topology, mode: FaultMode, words: Sequence[str]) -> int | None:
    """Return the emulated rate of a degraded link; `None` for all other modes."""
    text = " ".join(words)
    if mode is not FaultMode.DEGRADE:
        refuse_words("fault", words, f"{mode} ")
        return None
    try:
        rate_bps = parse_rate(text) / topology.spec.bandwidth_scale
    except ValueError as error:
        raise InputError(Problem("fault", f"remaining rate {error}")) from error
    if rate_bps < LEAST_LEFT_BPS:
        what = f"leaves {rate_bps:.6g} bit/s, below the {LEAST_LEFT_BPS} that can be shaped"
        raise InputError(Problem("fault", what, "use blackhole for a link that carries none"))
    return round(rate_bps)


def refuse_words(command: str, words: Sequence[str], by: str = "") -> None:
    """Raise `InputError` for words that a command, or a part of it, does not take."""
    if words:
        what = f"{by}takes no further arguments, got {' '.join(words)!r}"
        raise InputError(Problem(command, what))


class Commands:
    """The commands on a session; `cases` are the workloads of its scenario on this fabric.

    `say` gets the lines that answer a command, `saw` the fabric's response to a fault.
    """

    def __init__(
        self,
        session: Session,
        cases: Sequence[Case],
        say: Callable[[str], None],
        saw: Callable[[FaultSeen], None] = lambda _: None,
    ) -> None:
        self._session, self._say, self._saw = session, say, saw
        # Other generators start programs of their own for each execution, so they are left to runs.
        by_agents = (case for case in cases if case.generator is Generator.AGENT)
        self.workloads = {without_fabric(case.name): case for case in by_agents}
        self._stop = threading.Event()
        self._running = threading.Thread()

    def all(self) -> tuple[Command, ...]:
        """Every command, with the words that complete it; docstrings are what `help` says."""
        gpus = list(self._session.topology.gpu_by_name)
        return (
            Command("fault", self.fault, self._fault_words, FAULT),
            Command("heal", self.heal, lambda _: [f.target for f in self._session.faults]),
            Command("faults", self.faults),
            Command("run", self.run, lambda before: [] if before else list(self.workloads), RUN),
            Command("stop", self.stop),
            Command("paths", self.paths, lambda before: gpus if len(before) < 2 else []),
            Command("load", self.load),
            Command("link", self.link),
            Command("switch", self.switch),
            Command("iperf", self.iperf, lambda before: gpus if len(before) < 2 else []),
            Command("iperfudp", self.iperfudp),
        )

    def fault(self, words: Sequence[str]) -> None:
        """Begin a fault, and describe the fabric's response."""
        seen = self._session.inject(parse_fault(self._session.topology, words))
        self._saw(seen)
        self._say("\n".join(fault_lines(seen)))

    def _fault_words(self, before: Sequence[str]) -> Sequence[str]:
        known = targets(self._session.topology)
        if not before:
            return list(known)
        return [] if before[1:] or before[0] not in known else modes(known[before[0]])

    def heal(self, words: Sequence[str]) -> None:
        """Undo faults: heal [NAME ...]. Without a name, all of them."""
        lasting = [fault.target for fault in self._session.faults]
        if not (words or lasting):
            self._say("No fault is active.")
        for target in words or lasting:
            self._session.heal(target)
            self._say(f"{target} works again.")

    def faults(self, words: Sequence[str]) -> None:
        """List what is broken."""
        refuse_words("faults", words)
        lasting = self._session.faults
        self._say("\n".join(fault.in_words for fault in lasting) or "No fault is active.")

    def run(self, words: Sequence[str]) -> None:
        """Execute a workload once, or with `&` repeatedly, beside the command line."""
        beside = list(words[-1:]) == ["&"]
        case = self._case(words[:-1] if beside else words)
        if self._running.is_alive():
            raise InputError(Problem("run", "a workload is already running", "`stop` ends it"))
        self._stop.clear()
        self._running = threading.Thread(target=self._execute, args=(case, beside))
        self._running.start()
        if beside:
            self._say(f"{without_fabric(case.name)} is executed again and again; `stop` ends it.")
            return
        try:
            self._running.join()
        except KeyboardInterrupt:
            self.end()

    def _execute(self, case: Case, again: bool) -> None:
        """Execute a workload, in a thread of its own, and print each result."""
        try:
            while not self._stop.is_set():
                self._say(executed_line(self._session.execute(case, self._stop.is_set)))
                if not again:
                    return
        except (RailbedError, OSError) as error:
            self._say(str(error))

    def stop(self, words: Sequence[str]) -> None:
        """End the workload that `run WORKLOAD &` has started."""
        refuse_words("stop", words)
        if not self._running.is_alive():
            self._say("No workload is running.")
        self.end()

    def end(self) -> None:
        """End the workload that is executed, if any."""
        self._stop.set()
        if self._running.is_alive():
            self._running.join()

    def _case(self, words: Sequence[str]) -> Case:
        known = ", ".join(self.workloads)
        if len(words) != 1:
            raise InputError(Problem("run", f"needs one workload, of {known}"))
        (name,) = words
        if name not in self.workloads:
            near = did_you_mean(name, tuple(self.workloads)).rstrip("; ")
            raise InputError(Problem("run", f"unknown workload {name!r}{near}", f"known: {known}"))
        return self.workloads[name]

    def paths(self, words: Sequence[str]) -> None:
        """Show the path between two GPUs, intended and taken: paths d0g0 d1g1."""
        source, destination = self._pair("paths", words)
        self._say("\n".join(path_lines(self._session.path(source, destination))))

    def _pair(self, command: str, words: Sequence[str]) -> tuple[Gpu, Gpu]:
        gpus = self._session.topology.gpu_by_name
        first, *_, last = gpus
        unknown = [word for word in words if word not in gpus]
        if unknown:
            raise InputError(Problem(command, f"unknown GPU {unknown[0]!r}", f"{first} to {last}"))
        if len(words) != 2 or words[0] == words[1]:
            what = f"needs two different GPUs, got {' '.join(words) or 'nothing'}"
            raise InputError(Problem(command, what, f"such as {command} {first} {last}"))
        return gpus[words[0]], gpus[words[1]]

    def load(self, words: Sequence[str]) -> None:
        """Show what the links carry within a second, the busiest first."""
        refuse_words("load", words)
        self._say("\n".join(load_lines(self._session.load(WATCHED_S))))

    def link(self, words: Sequence[str]) -> None:
        """Take a link down or up: link NODE1 NODE2 up|down. Like `fault` and `heal`."""
        if len(words) != 3 or words[2] not in ("up", "down"):
            raise InputError(Problem("link", "needs two nodes, and up or down"))
        one, other, status = words
        names = [f"{one}--{other}", f"{other}--{one}"]
        name = next((n for n in names if n in self._session.topology.link_by_name), names[0])
        self._turn(name, status == "down", FaultMode.DOWN)

    def switch(self, words: Sequence[str]) -> None:
        """Stop or start a switch: switch NAME stop|start. Like `fault` and `heal`."""
        if len(words) != 2 or words[1] not in ("start", "stop"):
            raise InputError(Problem("switch", "needs a switch, and start or stop"))
        name, status = words
        component = require_target(self._session.topology, name)
        if component not in SWITCHES:
            what = f"{name} is not a switch"
            raise InputError(Problem("switch", what, "`fault` and `heal` take any component"))
        mode = FaultMode.KILL if FaultMode.KILL in modes(component) else FaultMode.DOWN
        self._turn(name, status == "stop", mode)

    def _turn(self, target: str, off: bool, mode: FaultMode) -> None:
        if off:
            self.fault([target, mode])
        else:
            self.heal([target])

    def iperf(self, words: Sequence[str]) -> None:
        """Measure the TCP throughput between two GPUs: iperf [GPU1 GPU2]."""
        gpus = self._session.topology.job_gpus
        pair = words or (gpus[0].name, gpus[-1].name)
        source, destination = self._pair("iperf", pair)
        bps = self._session.throughput_bps(source, destination)
        self._say(f"{source.name} to {destination.name}: {bps / 1e6:.2f} Mbit/s of payload")

    def iperfudp(self, _words: Sequence[str]) -> None:
        """Not offered: agents send TCP. Use iperf."""
        what = "agents send TCP; UDP beyond a link's rate is dropped, which measures nothing"
        raise InputError(Problem("iperfudp", what, "use iperf"))


FAULT = f"""Break something: fault NAME [MODE [RATE]]. `heal` undoes it.
NAME is a link (d0g0--rail0), a switch, a GPU, a domain (d0) or `controller`.
A link's modes are {", ".join(modes(Component.NIC_LINK))}: `degrade 100 Gbit/s`.
Affected pairs are probed a thousand times a second, which gives the longest blackout."""
RUN = """Execute a workload of the scenario: run WORKLOAD, and compare it with the model.
`run WORKLOAD &` executes it again and again while other commands work; `stop` ends it."""


def fault_lines(seen: FaultSeen) -> list[str]:
    """Describe a fault: the controller's response times, and the time without any packet."""
    lines = [f"{seen.fault.in_words}: {_answer(seen)}"]
    if seen.blackout_ms is not None:
        pairs = f"{counted(len(seen.blackouts), 'probed pair')} with another path"
        endless = sum(one is not None and isinf(one.duration_ms) for one in seen.blackouts.values())
        lasted = f"{seen.blackout_ms:.0f} ms, the longest of {pairs}"
        if endless:
            lasted = f"no end was seen for {endless} of {pairs}"
        lines.append(f"Blackout: {lasted}.")
    if drained := ", ".join(sorted(seen.health.drained)):
        lines.append(f"Drained, as other links are faster: {drained}")
    return lines


def _answer(seen: FaultSeen) -> str:
    if seen.controller_is_gone:
        gone = "without a controller, faults are not detected and paths stay"
        return f"{gone}, until `heal controller`"
    times_ms = seen.times.detected_ms, seen.times.confirmed_ms
    detected, confirmed = (number_or_dash(one, ".0f", " ms") for one in times_ms)
    return f"detected after {detected}, new paths confirmed after {confirmed}"


def executed_line(done: Executed | None) -> str:
    """Give the time of an execution, measured and modeled; their ratio if the model holds."""
    if done is None:
        return "Ended early."
    name, repeat = without_fabric(done.case.name), done.repeat
    measured_s, modeled_s = repeat.completion_s, done.prediction.completion_s
    line = f"{name}: measured {measured_s:.3f} s, modeled {modeled_s:.3f} s"
    if not repeat.complete:
        line += f", incomplete{causes(repeat)}"
    if done.changes:
        changes = ", ".join(f"{change} at {since_s:.3f} s" for since_s, change in done.changes)
        return f"{line}; the model is of the fabric at the start, which changed: {changes}"
    return f"{line}, ratio {measured_s / modeled_s:.4f}" if repeat.complete else line


def path_lines(seen: PathSeen) -> list[str]:
    """Give the intended path of a pair's packets, and the paths that the probes took."""
    taken = Counter(_nodes(trace.hops) for trace in seen.traces if trace.arrived)
    lost = sum(not trace.arrived for trace in seen.traces)
    lines = [f"intended: {_nodes(seen.intended) if seen.intended else 'none, it is cut off'}"]
    of = f"of {len(seen.traces)} probes"
    lines += [f"taken by {count} {of}: {way}" for way, count in taken.items()]
    return [*lines, f"lost: {lost} {of}"] if lost else lines


def _nodes(hops: Sequence[Hop]) -> str:
    return " > ".join([hops[0].sender, *(hop.receiver for hop in hops)]) if hops else "nowhere seen"


def load_lines(loads: Sequence[LinkLoad]) -> list[str]:
    """A line for each direction of a link that carries data, the busiest first."""
    carrying = (load for load in loads if load.use >= LEAST_SHOWN_USE)
    busy = sorted(carrying, key=lambda load: load.use, reverse=True)
    lines = [
        f"{load.hop.sender:>8} > {load.hop.receiver:8} {load.use:6.1%}  "
        f"{load.carried_bps / 1e6:9.3f} Mbit/s  {load.backlog_bytes:8} B queued"
        for load in busy[:MOST_SHOWN]
    ]
    if len(busy) > MOST_SHOWN:
        lines.append(f"and {len(busy) - MOST_SHOWN} less busy directions of links")
    return lines or ["No link carries data."]


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
            commands.end()


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
