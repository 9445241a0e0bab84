"""Check the fabric of a scenario file, and build its specification for one kind of fabric."""

from collections.abc import Iterator
from itertools import chain
from math import ceil, floor, log2

from model.fabric.addressing import MAX_DOMAIN_SIZE, MAX_DOMAINS, MAX_LANES
from model.fabric.shaping import (
    DEFAULT_DEPTH_S,
    ETHERNET_HEADER_BYTES,
    LINUX_QUEUE,
    MAX_RATE_BPS,
    MIN_RATE_BPS,
    MOST_BUFFER_BYTES,
    MTU_BYTES,
    SEGMENT_PACKETS,
    Impairment,
    SwitchQueue,
    segment_bytes,
    wire_bytes,
)
from model.fabric.spec import (
    PLATFORMS,
    Datapath,
    FabricKind,
    FabricSpec,
    HbNetwork,
    NicNetwork,
    Planes,
    Spares,
    SpineSelection,
    Spread,
)
from model.fabric.transport import MTUS, TIMEOUT_UNIT_S, Congestion, Roce, Transport
from scenarios.format.irregular import (
    GPU,
    LEAST_GPUS,
    missing_issues,
    missing_slots,
    wiring,
    wiring_issues,
)
from scenarios.format.issues import Issue
from scenarios.format.keys import DatapathChoice, Fabric, RoceKeys, ScenarioFile
from scenarios.format.units import MOST_S, round_down, round_up

# The largest fabric that was measured has 256 GPUs, the largest that was computed 1024. So few
# uplinks also leave a switch below the 0xff00 ports that Open vSwitch numbers.
MAX_GPUS, MAX_UPLINKS = 4096, 16384
# Of a domain's NICs, one for each.
MAX_RAILS = MAX_DOMAIN_SIZE
# The largest fabric whose closed forms were computed.
MAX_GPUS_ON_PAPER = 65536
# By hash, a rail switch has a rule for each NIC and each GPU on another rail.
MOST_HASHED_GPUS = 256
# No closed form describes GPUs that share NICs, have several, or use one port of two: each transfer
# is followed.
MOST_FOLLOWED = 1024


def fabric_issues(fabric: Fabric, on_paper: bool = False) -> Iterator[Issue]:
    """Issues of the keys, without building a fabric; `on_paper`, no switch limits its size."""
    own = (fabric.hb_rate, fabric.nic_rate)
    if fabric.platform is not None and own != (None, None):
        what = "cannot be combined with hb_rate or nic_rate"
        yield Issue(("fabric", "platform"), what, "set it to null, and give both rates")
    if fabric.platform is None and None in own:
        what, known = "needs a platform, or both hb_rate and nic_rate", ", ".join(PLATFORMS)
        yield Issue(("fabric",), what, f"known: {known}")
    yield from _hb_switch_issues(fabric)
    yield from _nic_issues(fabric)
    yield from _transport_issues(fabric)
    yield from _queue_issues(fabric)
    domains = fabric.domains + fabric.spare_domains
    if fabric.rail_leaves > domains:
        what = f"must be at most the number of domains, {domains}, got {fabric.rail_leaves}"
        yield Issue(("fabric", "rail_leaves"), what)
    of_size = list(_size_issues(fabric, on_paper))
    yield from of_size or chain(missing_issues(fabric), wiring_issues(fabric))


def _not_default(fabric: Fabric, *keys: str) -> list[str]:
    """Those of some keys that have another value than their default."""
    return [key for key in keys if getattr(fabric, key) != Fabric.model_fields[key].default]


def _nic_issues(fabric: Fabric) -> Iterator[Issue]:
    """Issues of ports and NICs that do not fit, and of what only single ports support."""
    if fabric.nic_ports == 1:
        for key in _not_default(fabric, "planes", "spread"):
            yield Issue(("fabric", key), "needs two ports; a NIC has 1 port", "add nic_ports: 2")
    elif fabric.planes is Planes.SEPARATE and fabric.spread is Spread.HASH:
        what = "hash needs bonded ports; on separate planes, each transfer has a part on each"
        yield Issue(("fabric", "spread"), what, "use planes: bonded")
    yield from _number_issues(fabric)
    if fabric.pxn is not None and FabricKind.RAIL_OPTIMIZED not in fabric.kinds:
        what = "has no effect here: rail-only always uses the NIC of the peer, custom links never"
        yield Issue(("fabric", "pxn"), what, "leave it out, or add the kind rail-optimized")
    if fabric.nic_ports > 1 or fabric.nics != fabric.domain_size:
        for key in _not_default(fabric, "rail_leaves", "spare_gpus", "spare_rail_switches"):
            what = "needs one NIC of one port for each GPU"
            yield Issue(("fabric", key), what, "leave out nic_ports and nics_per_domain")


def _number_issues(fabric: Fabric) -> Iterator[Issue]:
    """Yield an issue of NICs that GPUs cannot share or have equally, or that are too many."""
    gpus, nics, place = fabric.domain_size, fabric.nics, ("fabric", "nics_per_domain")
    # Each transfer has to be followed where GPUs have no single NIC and port.
    count = fabric.domains * max(gpus, nics) * fabric.nic_ports
    is_followed = nics != gpus or fabric.spread is Spread.HASH
    if nics % gpus and gpus % nics:
        what = f"{nics} NICs and {gpus} GPUs of a domain: one number must divide the other"
        yield Issue(place, what, f"use a divisor or a multiple of {gpus}")
    elif fabric.lanes > MAX_LANES:
        yield Issue(place, f"a GPU must have at most {MAX_LANES} NIC ports, got {fabric.lanes}")
    elif is_followed and count > MOST_FOLLOWED:
        key = "spread" if nics == gpus else "nics_per_domain"
        what = f"supports at most {MOST_FOLLOWED} GPUs times their NIC ports, got {count}"
        yield Issue(("fabric", key), what, "no closed form describes such NICs")


def _size_issues(fabric: Fabric, on_paper: bool) -> Iterator[Issue]:
    """Issues of sizes beyond the addresses, the rails, or what was measured or computed."""
    domains, size = fabric.domains + fabric.spare_domains, fabric.domain_size + fabric.spare_gpus
    gpus, of_job = domains * size, fabric.domains * fabric.domain_size
    # Spares replace what emulated faults break: with them, paper has the emulation's limits.
    has_spares = gpus > of_job or fabric.spare_rail_switches
    if on_paper and not has_spares:
        if not LEAST_GPUS <= gpus <= MAX_GPUS_ON_PAPER:
            what = f"must have {LEAST_GPUS} to {MAX_GPUS_ON_PAPER} GPUs on paper, got {gpus}"
            yield Issue(("fabric", "domains"), what)
        return
    fits_paper = gpus <= MAX_GPUS_ON_PAPER and not has_spares
    hint = f"`./railbed predict` has up to {MAX_GPUS_ON_PAPER} GPUs" if fits_paper else ""
    for key, value, most in (
        ("domains", domains, MAX_DOMAINS),
        ("domain_size", size, MAX_DOMAIN_SIZE),
    ):
        if value > most:
            what = f"must be at most {most} (address space), got {value}"
            yield Issue(("fabric", key), what, hint)
    if domains > MAX_DOMAINS or size > MAX_DOMAIN_SIZE:
        return
    rails = (fabric.nics_per_domain or size) + fabric.spare_rail_switches
    if rails > MAX_RAILS:
        key = "spare_rail_switches" if fabric.spare_rail_switches else "nics_per_domain"
        what = f"must leave at most {MAX_RAILS} rails, spares included, got {rails}"
        yield Issue(("fabric", key), what)
        return
    if of_job < LEAST_GPUS:
        what = f"must have at least {LEAST_GPUS} GPUs without spares, got 1 in 1 domain"
        yield Issue(("fabric", "domains"), what)
    if gpus > MAX_GPUS:
        what = f"must have at most {MAX_GPUS} GPUs, spares included, got {gpus}"
        yield Issue(("fabric", "domains"), what, hint)
    flows = gpus * (fabric.roce.queue_pairs if fabric.roce else 1)
    if fabric.spine_selection is SpineSelection.HASH and flows > MOST_HASHED_GPUS:
        what = f"hash supports at most {MOST_HASHED_GPUS} GPUs times queue pairs, got {flows}"
        yield Issue(("fabric", "spine_selection"), what)
    of_rail = max(_uplinks_of_rail(fabric, kind) for kind in fabric.kinds)
    if (uplinks := rails * fabric.nic_ports * of_rail) > MAX_UPLINKS:
        what = f"must have at most {MAX_UPLINKS} uplinks, got {uplinks}"
        yield Issue(("fabric", "spines"), what)


def _hb_switch_issues(fabric: Fabric) -> Iterator[Issue]:
    size = fabric.domain_size + fabric.spare_gpus
    if size % fabric.hb_leaves:
        what = f"{fabric.hb_leaves} leaf HB switches must divide {size} GPUs, spares included"
        yield Issue(("fabric", "hb_leaves"), what, f"use a divisor of {size}")
    if fabric.hb_leaves == 1 and fabric.hb_oversubscription > 1:
        what = "needs trunks; a single HB switch has none"
        yield Issue(("fabric", "hb_oversubscription"), what, "use hb_leaves of 2 or more")


def _transport_issues(fabric: Fabric) -> Iterator[Issue]:
    place, selection, roce = ("fabric", "roce"), ("fabric", "spine_selection"), fabric.roce
    is_tcp, is_custom = fabric.transport is Transport.TCP, FabricKind.CUSTOM in fabric.kinds
    is_spray = fabric.spine_selection is SpineSelection.SPRAY
    if is_spray and is_tcp:
        yield Issue(selection, "spray needs transport: roce", "add it, or use hash")
    if is_spray and is_custom:
        yield Issue(selection, "spray needs a fabric with rails", "use hash, or destination")
    if roce is None:
        return
    if is_tcp:
        yield Issue(place, "needs transport: roce", "add it, or leave these keys out")
    if roce.mtu not in MTUS:
        what = f"must be one of {', '.join(map(str, MTUS))}, got {roce.mtu}"
        yield Issue((*place, "mtu"), what)
    if roce.timeout is not None and roce.timeout_seconds is not None:
        yield Issue((*place, "timeout"), "cannot be combined with timeout_seconds")
    is_dcqcn = roce.congestion is Congestion.DCQCN
    if is_dcqcn and not (fabric.switch_queue and fabric.switch_queue.ecn):
        what = "dcqcn needs ECN marks, which no switch sets"
        yield Issue((*place, "congestion"), what, "add switch_queue: {ecn: true}")
    rated = (entry.from_ for entry in fabric.links if entry.rate is not None)
    if is_dcqcn and any(map(GPU.fullmatch, chain(*rated))):
        what = "dcqcn needs NIC ports of one rate, nic_rate / nic_ports"
        yield Issue((*place, "congestion"), what, "leave out the rates of links of GPUs")
    if is_spray and roce.queue_pairs > 1:
        what = "spray uses all paths for each queue pair"
        yield Issue((*place, "queue_pairs"), what, "use 1, or spine_selection: hash")
    if roce.split_data and roce.queue_pairs == 1:
        yield Issue((*place, "split_data"), "needs queue_pairs of 2 or more")
    if roce.split_data and is_custom and fabric.lanes > 1:
        what = "needs a GPU with one NIC port in a custom fabric: parts of a transfer may use both"
        yield Issue((*place, "split_data"), what, "leave it out, or use nic_ports: 1")


def _queue_issues(fabric: Fabric) -> Iterator[Issue]:
    place, queue = ("fabric", "switch_queue"), fabric.switch_queue
    if queue is None:
        return
    if not queue.ecn:
        for key in sorted(queue.model_fields_set & {"kmin", "kmax", "pmax"}):
            yield Issue((*place, key), "needs ecn: true", "add it, or leave this key out")
    elif queue.kmin >= queue.kmax:
        what = f"must be less than kmax, {queue.kmax} B, got {queue.kmin} B"
        yield Issue((*place, "kmin"), what)
    elif queue.kmin >= queue.buffer:
        what = (
            f"must be less than buffer, {queue.buffer} B, got {queue.kmin} B: no packet is marked"
        )
        yield Issue((*place, "kmin"), what)


def _uplinks_of_rail(fabric: Fabric, kind: FabricKind) -> int:
    """Number of uplinks of all switches of a rail."""
    leaves = _leaves(fabric, kind)
    has_spines = kind is FabricKind.RAIL_OPTIMIZED or leaves > 1
    return leaves * _spines(fabric, kind) if has_spines else 0


def idle_keys(fabric: Fabric) -> Iterator[str]:
    """Yield the keys of switches that none of the fabric's kinds has, or has one of, with why.

    They are not refused: a kind may be left out for one run, and the keys be there for the other.
    """
    spines = [_spines(fabric, kind) for kind in fabric.kinds if _uplinks_of_rail(fabric, kind)]
    of_links = () if FabricKind.CUSTOM in fabric.kinds else ("spine_selection",)
    if not spines:
        if given := _not_default(fabric, "spines", "oversubscription", "planes", *of_links):
            keys = ", ".join(f"fabric.{key}" for key in given)
            yield f"{keys}: no kind of fabric here has spine switches"
    elif max(spines) == 1 and _not_default(fabric, *of_links):
        yield "fabric.spine_selection: there is one spine switch to select"
    if fabric.rail_leaves > 1 and FabricKind.RAIL_ONLY not in fabric.kinds:
        yield "fabric.rail_leaves: rail-only alone has them"


def _leaves(fabric: Fabric, kind: FabricKind) -> int:
    return fabric.rail_leaves if kind is FabricKind.RAIL_ONLY else 1


def _spines(fabric: Fabric, kind: FabricKind) -> int:
    """Number of spine switches, of each rail if it has leaves; by default, uplinks match ports."""
    domains = fabric.domains + fabric.spare_domains
    return fabric.spines or ceil(domains / _leaves(fabric, kind))


def fabric_spec(
    file: ScenarioFile,
    kind: FabricKind,
    scale: float,
    depth_s: float = DEFAULT_DEPTH_S,
    grain_packets: int = SEGMENT_PACKETS,
) -> FabricSpec:
    """A fabric of the scenario: rates divided by a scale, buckets of a depth, and the grain."""
    fabric, platform = file.fabric, PLATFORMS.get(file.fabric.platform or "")
    hb_bps = platform.hb_rate_bps if platform else fabric.hb_rate or 0.0
    nic_bps = platform.nic_rate_bps if platform else fabric.nic_rate or 0.0
    is_default = fabric.datapath is DatapathChoice.AUTO
    return FabricSpec(
        kind=kind,
        domains=fabric.domains + fabric.spare_domains,
        domain_size=fabric.domain_size + fabric.spare_gpus,
        platform=fabric.platform or "own",
        hb=HbNetwork(
            rate_bps=round(hb_bps),
            leaves=fabric.hb_leaves,
            oversubscription=fabric.hb_oversubscription,
            impairment=Impairment(fabric.hb_delay, fabric.hb_loss),
        ),
        nic=_nic_network(fabric, kind, round(nic_bps)),
        bandwidth_scale=scale,
        seed=file.seed,
        spares=Spares(fabric.spare_domains, fabric.spare_gpus, fabric.spare_rail_switches),
        bucket_depth_s=depth_s,
        grain_packets=grain_packets,
        window=fabric.window,
        datapath=None if is_default else Datapath(fabric.datapath),
        transport=fabric.transport,
        roce=_roce(fabric.roce or RoceKeys(), scale),
        missing=missing_slots(fabric),
    )


def _roce(keys: RoceKeys, scale: float) -> Roce:
    """Return how RoCE sends: slow motion stretches its times as it does those of packets."""
    timeout_s = keys.timeout_seconds
    if keys.timeout is not None:
        timeout_s = TIMEOUT_UNIT_S * 2**keys.timeout * scale
    same = keys.model_dump(exclude={"split_data", "timeout", "timeout_seconds"})
    return Roce(**same, split=keys.split_data, timeout_s=timeout_s)


def _nic_network(fabric: Fabric, kind: FabricKind, rate_bps: int) -> NicNetwork:
    keys, queue = fabric.switch_queue, LINUX_QUEUE
    if keys is not None:
        queue = SwitchQueue(keys.buffer, keys.ecn, keys.kmin, keys.kmax, keys.pmax)
    return NicNetwork(
        rate_bps=rate_bps,
        spines=1 if kind is FabricKind.CUSTOM else _spines(fabric, kind),
        leaves=_leaves(fabric, kind),
        oversubscription=fabric.oversubscription,
        spine_selection=fabric.spine_selection,
        ports=fabric.nic_ports,
        planes=fabric.planes or Planes.BONDED,
        spread=fabric.spread or Spread.QUEUE_PAIRS,
        pxn=bool(fabric.pxn) and kind is FabricKind.RAIL_OPTIMIZED,
        per_domain=None if fabric.nics_per_domain == fabric.domain_size else fabric.nics_per_domain,
        impairment=Impairment(fabric.nic_delay, fabric.nic_loss),
        queue=queue,
        links=wiring(fabric, rate_bps / fabric.nic_ports) if kind is FabricKind.CUSTOM else (),
    )


def buffer_issues(spec: FabricSpec) -> Iterator[Issue]:
    """Yield an issue if a buffer is too small for what is sent at once, which would never pass."""
    least, of = ceil(wire_bytes(segment_bytes(spec.grain_packets))), "segment of TCP (`grain`)"
    if spec.transport is Transport.ROCE:
        least, of = spec.link_mtu_bytes + ETHERNET_HEADER_BYTES, "packet"
    buffer = spec.nic.queue.buffer_bytes
    if buffer is not None and buffer < least:
        what = f"must be at least {least} B, the longest {of}, got {buffer} B"
        yield Issue(("fabric", "switch_queue", "buffer"), what)


def delay_issues(spec: FabricSpec) -> Iterator[Issue]:
    """Yield an issue of delays at which a connection has more under way than a socket holds."""
    of_nics = "links" if spec.nic.links and not spec.nic.impairment.delay_s else "nic_delay"
    networks = [("hb_delay", False)] + [(of_nics, True)] * (spec.transport is Transport.TCP)
    for key, by_nic in networks:
        size = spec.send_buffer_bytes(by_nic=by_nic)
        if size > MOST_BUFFER_BYTES:
            under_way = spec.under_way_bytes(by_nic=by_nic)
            spare = MOST_BUFFER_BYTES - spec.grain_packets * MTU_BYTES
            least = ceil(spec.bandwidth_scale * under_way / spare)
            hint = f"use a shorter delay, or a bandwidth_scale of at least {least}"
            what = f"a round trip must need a send buffer of at most {MOST_BUFFER_BYTES} B"
            yield Issue(("fabric", key), f"{what}, got {size} B", hint)


def timeout_issues(spec: FabricSpec) -> Iterator[Issue]:
    """Yield an issue if slow motion stretches the timeout of queue pairs beyond a day."""
    timeout_s = spec.roce.timeout_s or 0.0
    if timeout_s > MOST_S:
        scale = spec.bandwidth_scale
        stretched = f"is {timeout_s:.3g} s, stretched by bandwidth_scale {scale:g}"
        what = f"{stretched}: must be at most a day, {MOST_S:g} s"
        most = floor(log2(MOST_S / TIMEOUT_UNIT_S / scale))
        hint = f"use at most {most}, or timeout_seconds" if most > 0 else "use timeout_seconds"
        yield Issue(("fabric", "roce", "timeout"), what, hint)


def rate_issues(spec: FabricSpec) -> Iterator[Issue]:
    """Yield an issue if the slowest link is too slow to be shaped, or the fastest too fast."""
    place, scale = ("fabric", "bandwidth_scale"), spec.bandwidth_scale
    rates = spec.emulated_rates_bps.items()
    slow, slowest = min(rates, key=lambda item: item[1])
    fast, fastest = max(rates, key=lambda item: item[1])
    shaped = f"that can be shaped (bandwidth_scale {scale:g})"
    if slowest < MIN_RATE_BPS:
        least = f"below the {MIN_RATE_BPS / 1e6:g} Mbit/s {shaped}"
        hint = f"use at most {round_down(scale * slowest / MIN_RATE_BPS):g}"
        yield Issue(place, f"leaves {slow} {slowest / 1e6:.3g} Mbit/s, {least}", hint)
    if fastest > MAX_RATE_BPS:
        most = f"above the {MAX_RATE_BPS / 1e9:g} Gbit/s {shaped}"
        hint = f"use at least {round_up(scale * fastest / MAX_RATE_BPS):g}"
        yield Issue(place, f"leaves {fast} {fastest / 1e9:.6g} Gbit/s, {most}", hint)
