"""The scenario file's keys, types and defaults. Unknown keys are forbidden.

The text below a key, or its `description`, is the reference in docs/reference/scenarios.md.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, model_validator

from model.fabric.addressing import MAX_DOMAIN_SIZE, MAX_DOMAINS
from model.fabric.shaping import (
    DEFAULT_WINDOW,
    LEAST_DEPTH_S,
    LEAST_GRAIN_PACKETS,
    MOST_DEPTH_S,
    MOST_QUEUE_BYTES,
    SEGMENT_PACKETS,
    SwitchQueue,
)
from model.fabric.spec import COMPARED, Datapath, FabricKind, Planes, SpineSelection, Spread
from model.fabric.transport import (
    MOST_QUEUE_PAIRS,
    MOST_RETRIES,
    MOST_TIMEOUT,
    MOST_WINDOW,
    MTUS,
    Congestion,
    Recovery,
    Roce,
    Transport,
)
from model.faults import Component, FaultMode
from model.job.placement import RecoveryStrategy
from scenarios.format.checked_file import Strict
from scenarios.format.document import FileKind
from scenarios.format.files import PathText, in_folder
from scenarios.format.issues import Refused
from scenarios.format.networks.files import Links, read_network
from scenarios.format.units import (
    MOST_S,
    Bytes,
    Count,
    Delay,
    Flag,
    Kinds,
    Loss,
    Missing,
    Names,
    Platform,
    Rate,
    Scale,
    Seconds,
    Seed,
    ShortName,
    Text,
    Whole,
    listed,
)
from scenarios.format.workloads.kinds import AnyWorkload

SCENARIO = FileKind(
    "scenario",
    "`./railbed list` names the scenarios that come with Railbed",
    "docs/reference/scenarios.md",
    "a trace is named by a workload's `trace`, or given to `./railbed predict`",
)
# Beyond these bounds arithmetic overflows, or a run never ends.
MOST_RATIO = 1e6
SHORTEST_PERIOD_S = 0.01
MOST_PERIODS, MOST_EXECUTIONS, MOST_PAIRS = 10_000, 1000, 8000
MOST_WORKLOADS, MOST_FAULTS = 30, 100
MOST_DESCRIPTION = 10_000
# The part of a port in the shared buffer of the switches with which DCQCN was measured (Arista
# 7050QX32; Zhu et al., SIGCOMM 2015, section 4).
PORT_BUFFER_BYTES = 375_000
Oversubscription = Annotated[float, Field(ge=1, le=MOST_RATIO, strict=True)]
Deviation = Annotated[float, Field(gt=0, le=MOST_RATIO, strict=True)]


class DatapathChoice(StrEnum):
    """A datapath of Open vSwitch, or the machine's default."""

    AUTO = "auto"
    KERNEL = Datapath.KERNEL
    USER_SPACE = Datapath.USER_SPACE


class RoceKeys(Strict):
    """How GPUs of different HB domains send by `transport: roce`."""

    mtu: int = Field(
        default=Roce.mtu,
        strict=True,
        description=f"most payload of a packet, in bytes: {', '.join(map(str, MTUS))}",
    )
    queue_pairs: Count = Field(default=Roce.queue_pairs, le=MOST_QUEUE_PAIRS)
    """queue pairs from a GPU to another one, 1 to 16 (NCCL_IB_QPS_PER_CONNECTION)"""
    split_data: Flag = Roce.split
    """send a part of each transfer on each queue pair, instead of transfers in turn
    (NCCL_IB_SPLIT_DATA_ON_QPS)"""
    congestion: Congestion = Roce.congestion
    """`window` alone, `dcqcn` by marks of switches, `swift` by delay"""
    recovery: Recovery = Roce.recovery
    """what is retransmitted after a loss: `go-back-n`, or `selective-repeat`"""
    window: Count = Field(default=Roce.window, le=MOST_WINDOW)
    """most unacknowledged packets of a queue pair"""
    timeout: Annotated[int, Field(ge=1, le=MOST_TIMEOUT, strict=True)] | None = None
    """`timeout` of ibv_modify_qp: 4.096 us times two to the power of it, times `bandwidth_scale`;
    default: a round trip over links that delay, behind full windows of all pairs of GPUs that may
    share each link of a path, even one that a fault slows down or leaves alone"""
    timeout_seconds: Seconds | None = Field(default=None, gt=0)
    """instead: the same in emulated seconds"""
    retries: Whole = Field(default=Roce.retries, le=MOST_RETRIES)
    """retries in a row without progress; the next one ends the execution (`retry_cnt`)"""


class SwitchQueueKeys(Strict):
    """The queues of rail and spine switches: their buffers, and ECN marks by their lengths."""

    buffer: Annotated[Bytes, Field(le=MOST_QUEUE_BYTES)] = PORT_BUFFER_BYTES
    """what a port holds; more is dropped. Default: 12 MB over 32 ports"""
    ecn: Flag = SwitchQueue.ecn
    """mark packets by the queue's length"""
    kmin: Bytes = SwitchQueue.kmin_bytes
    """ecn: while fewer bytes wait, no packet is marked"""
    kmax: Annotated[Bytes, Field(le=MOST_QUEUE_BYTES)] = SwitchQueue.kmax_bytes
    """ecn: while more bytes wait, all are marked"""
    pmax: Annotated[float, Field(gt=0, le=1, strict=True)] = SwitchQueue.pmax
    """ecn: fraction of packets that is marked right below `kmax`"""


class Fabric(Strict):
    """The fabric: its shape, its rates and their scale."""

    topology: PathText | None = None
    """a network in a file: a custom one, or of ASTRA-sim or SimAI, its path from the scenario's
    folder; gives the keys below that the scenario does not"""
    kinds: Kinds = COMPARED
    """`rail-only`, `rail-optimized`, `custom`, or a list; default: the first two, with `links` the
    last"""
    domains: Count
    """number of HB domains, y; with 1, no traffic leaves it: the ideal network"""
    domain_size: Count
    """GPUs in an HB domain, K = x"""
    missing: Missing = ()
    """GPUs that unequal domains lack (`d1g3`): they have no proxy and no links, and ranks number
    the others"""
    domain_sizes: tuple[Annotated[Count, Field(le=MAX_DOMAIN_SIZE)], ...] | None = Field(
        default=None, min_length=1, max_length=MAX_DOMAINS
    )
    """instead of `domains`, `domain_size` and `missing`: the GPUs of each domain, whose last ones
    are missing (`[8, 8, 7, 8]`)"""
    platform: Platform | None = None
    """a platform that Railbed knows, whose bandwidths are taken"""
    hb_rate: Rate | None = None
    """instead of a platform: a GPU's rate into its HB domain"""
    nic_rate: Rate | None = None
    """instead of a platform: the rate of a NIC"""
    bandwidth_scale: Scale | Literal["auto"] = "auto"
    """real rates are divided by this; `auto`: the smallest that this machine carries"""
    spines: Count | None = None
    """spine switches of a rail-optimized fabric, or of each rail with leaves; default: one for each
    domain below a rail switch, at most, spares included"""
    spine_selection: SpineSelection = SpineSelection.DESTINATION
    """`destination`: the domains take the spine switches in turn; `hash`: each pair of GPUs, with
    RoCE each queue pair, by a hash, with collisions; `spray`: each packet of RoCE the next one"""
    oversubscription: Oversubscription = 1.0
    """downlinks' rate over uplinks' rate of a rail switch, of a rail's leaves of the one with most
    domains; the others have equal uplinks"""

    nic_ports: Count = Field(default=1, le=2)
    """ports of a NIC, which share its rate: 1, or 2, each to its own rail switch"""
    planes: Planes | None = None
    """two ports: `bonded` (default): all rail switches share the spine switches, as dual ToR;
    `separate`: each plane has its own"""
    spread: Spread | None = None
    """two ports: `queue-pairs` (default): a part of each transfer on each; `hash`: bonded, each
    pair of GPUs on one"""
    nics_per_domain: Count | None = None
    """NICs of a domain, a divisor or a multiple of its GPUs; default: one a GPU"""
    pxn: Flag | None = None
    """rail-optimized: packets to another rail leave by the NIC of the peer on that rail, not over
    spine switches (NCCL: unless NCCL_PXN_DISABLE); default: false"""
    links: Links = ()
    """custom: the [links](#custom-fabrics)"""
    rail_leaves: Count = 1
    """rail-only: leaf switches of a rail; from 2 on, each rail is a Clos network with `spines`
    spine switches"""
    hb_leaves: Count = 1
    """leaf HB switches of a domain; from 2 on, each has equally many GPUs, and a second-level HB
    switch joins them"""
    hb_oversubscription: Oversubscription = 1.0
    """HB links' rate over the trunk's rate of a leaf HB switch"""
    spare_domains: Whole = 0
    """idle HB domains, besides `domains`"""
    spare_gpus: Whole = 0
    """idle GPUs in each domain, besides `domain_size`"""
    spare_rail_switches: Whole = 0
    """rail switches that wait for NIC links"""
    bucket_depth: (
        Annotated[float, Field(ge=LEAST_DEPTH_S, le=MOST_DEPTH_S, strict=True)] | Literal["auto"]
    ) = Field(
        default="auto",
        description="seconds of its rate that a link makes up for at once after a pause, "
        f"{LEAST_DEPTH_S:g} to {MOST_DEPTH_S:g}; `auto`: as long as this machine's pauses",
    )
    grain: (
        Annotated[int, Field(ge=LEAST_GRAIN_PACKETS, le=SEGMENT_PACKETS, strict=True)]
        | Literal["auto"]
    ) = Field(
        default="auto",
        description="packets of a segment, the turns in which flows share a link, "
        f"{LEAST_GRAIN_PACKETS} to {SEGMENT_PACKETS}; `auto`: few where flows contend",
    )
    window: Count = DEFAULT_WINDOW
    """transfers that a GPU sends to another before the first is confirmed; 1: each waits for the
    confirmation of the one before"""
    transport: Transport = Transport.TCP
    """between GPUs of different HB domains: `tcp`, or `roce` in user space"""
    roce: RoceKeys | None = None
    """`transport: roce`; its keys are below"""
    hb_delay: Delay = 0.0
    """seconds that an HB link or trunk delays each packet"""
    hb_loss: Loss = 0.0
    """fraction of packets that an HB link or trunk drops"""
    nic_delay: Delay = 0.0
    """seconds that a NIC link or uplink delays each packet"""
    nic_loss: Loss = 0.0
    """fraction of packets that a NIC link or uplink drops"""
    switch_queue: SwitchQueueKeys | None = None
    """queues of rail and spine switches; its keys are below; default: 1000 packets"""
    datapath: DatapathChoice = DatapathChoice.AUTO
    """datapath of rail and spine switches: `kernel` or `user-space`; `auto`: this machine's
    default"""

    @property
    def nics(self) -> int:
        """The number of NICs of a domain."""
        return self.nics_per_domain or self.domain_size

    @property
    def lanes(self) -> int:
        """The number of NIC ports that a GPU uses."""
        return self.nic_ports * max(1, self.nics // self.domain_size)

    @model_validator(mode="before")
    @classmethod
    def _import_network(cls, given: Any, info: ValidationInfo) -> Any:
        """Add the keys of `domain_sizes`, and of the named network, that are not given."""
        given = _with_sizes(given)
        if not isinstance(given, dict):
            return given
        name, network = given.get("topology"), {}
        if isinstance(name, str):
            try:
                network = read_network(Path(in_folder(name, info)))
            except ValueError as error:
                raise Refused(str(error), key="topology") from error
            if "topology" not in network:
                # Nothing is left out that a name would stand for.
                given = {key: value for key, value in given.items() if key != "topology"}
        # Links without a kind are those of a custom fabric.
        if "links" in {**network, **given}:
            network.setdefault("kinds", FabricKind.CUSTOM.value)
        if network.get("domains") == 1 == given.get("domain_size"):
            # One switch without HB domains: each of its GPUs is a domain.
            network["domains"] = network["domain_size"]
        elif "domain_size" in network.keys() & given and "domains" not in given:
            size, other = network["domain_size"], given["domain_size"]
            if size != other:
                hint = "give domains as well to change it"
                raise Refused(f"is {size} in {name}, got {other}", hint, "domain_size")
        left_out = ("hb_rate", "nic_rate") if given.get("platform") is not None else ()
        return {key: value for key, value in network.items() if key not in left_out} | given


def _with_sizes(given: Any) -> Any:
    """Add the grid and the missing GPUs of domains whose sizes are listed."""
    if not isinstance(given, dict) or given.get("domain_sizes") is None:
        return given
    for key in ("domains", "domain_size", "missing"):
        if key in given:
            raise Refused(f"cannot be combined with {key}", key="domain_sizes")
    sizes, possible = given["domain_sizes"], range(1, MAX_DOMAIN_SIZE + 1)
    is_list = isinstance(sizes, list) and 1 <= len(sizes) <= MAX_DOMAINS
    if not is_list or not all(type(size) is int and size in possible for size in sizes):
        return {**given, "domains": 1, "domain_size": 1}  # the list itself is refused
    most = max(sizes)
    missing = [f"d{n}g{rail}" for n, size in enumerate(sizes) for rail in range(size, most)]
    return {**given, "domains": len(sizes), "domain_size": most, "missing": missing}


class Expect(Strict):
    """Limits of the ratio of measured to modeled completion time, and of blackouts."""

    ratio_within: Deviation = 0.02
    """further from 1: warn"""
    ratio_limit: Deviation = 0.05
    """further from 1: fail, exit code 1"""
    replay_within: Deviation = 0.2
    """the replay of a fault: warn"""
    replay_limit: Deviation = 0.5
    """the replay of a fault: fail"""
    blackout_ms: float | None = Field(default=None, gt=0, le=MOST_S * 1e3, strict=True)
    """faults: a longer blackout of any probed pair: fail"""


class FaultEntry(Strict):
    """A fault that begins during an execution, and lasts through the degraded phase."""

    what: Component = Field(description=f"the component: {listed(Component)}")
    how: FaultMode = Field(
        default=FaultMode.DOWN, description=f"the fault mode: {listed(FaultMode)}"
    )
    where: Names | None = None
    """names of the components (`d0g0--rail0`, `rail0`, `d0g0`, `d0`)"""
    random: Count | None = None
    """instead of names: how many, chosen by `seed`"""
    rate: Rate | None = None
    """degrade: the rate that is left of the link, on the real platform"""
    at: Seconds | None = None
    """seconds from the execution's start to the fault's; default: 0.3"""
    at_step: Whole | None = None
    """instead: the step of the execution with which the fault begins, from 0"""
    for_: float | None = Field(default=None, gt=0, le=MOST_S, strict=True, alias="for")
    """seconds that the fault lasts; default: until the end"""
    period: float = Field(default=0.5, ge=SHORTEST_PERIOD_S, le=MOST_S, strict=True)
    """flap: seconds; down for half of each"""
    count: Count = Field(default=4, le=MOST_PERIODS)
    """flap: how many periods"""


class Job(Strict):
    """The job, and its recovery from the faults of its scenario."""

    strategy: RecoveryStrategy = RecoveryStrategy.REROUTE
    """`reroute`: continue. All others begin the execution again: `abort-and-restart` where it was;
    for a lost GPU, `spare-gpu`, `spare-domain` (also for a domain), `remote-gpu` (of a spare
    domain); after an optical switch has moved NIC links, `swap-group` (for a GPU; rail-only, spare
    GPUs), `spare-rail-switch`"""
    restart_time: Seconds = 0.5
    """emulated seconds from the abort until the job is back"""
    reconfiguration_time: Seconds = 0.025
    """seconds that the optical switch takes"""
    group_size: Count = 2
    """swap-group: GPUs that change places together"""


class ScenarioFile(Strict):
    """A scenario file."""

    name: ShortName | None = None
    """default: the file's name"""
    description: Text = Field(default="", max_length=MOST_DESCRIPTION)
    """for people"""
    fabric: Fabric
    workloads: tuple[AnyWorkload, ...] = Field(min_length=1, max_length=MOST_WORKLOADS)
    """what to execute, in order"""
    faults: tuple[FaultEntry, ...] = Field(default=(), max_length=MOST_FAULTS)
    """the faults, if any"""
    job: Job = Field(default_factory=Job)
    """how the job recovers from faults"""
    probed_pairs: Count = Field(default=6, le=MOST_PAIRS)
    """faults: number of affected pairs that are probed at 1 kHz, equally many of each fault; each
    takes 0.5 Mbit/s of its links"""
    repeats: Annotated[Count, Field(le=MOST_EXECUTIONS)] | Literal["auto"] = 5
    """counted executions of a case; `auto`: until the median is known to 0.5 % either way with 95 %
    confidence, 6 to 30"""
    warmup: Whole = Field(default=1, le=MOST_EXECUTIONS)
    """executions before, not counted"""
    seed: Seed = 0
    """rotates the choice of spines; chooses `random` faults"""
    machine_seed: Seed = 0
    """virtual clock: seed of all random numbers of the machine"""
    check_data: Flag = False
    """send real numbers and check the result"""
    check_paths: Flag = False
    """before the cases, check the paths that packets take, as `railbed verify` does"""
    allow_overload: Flag = False
    """do not refuse rates and steps that this machine cannot keep up with"""
    expect: Expect = Field(default_factory=Expect)
    """the verdict's thresholds"""
