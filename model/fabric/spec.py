"""The specification of a fabric, as resolved from a scenario."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from model.fabric.shaping import DEFAULT_DEPTH_S, Impairment


class FabricKind(StrEnum):
    """The two networks that the rail-only paper compares (arXiv 2307.12169, figure 1)."""

    RAIL_ONLY = "rail-only"
    RAIL_OPTIMIZED = "rail-optimized"


class Datapath(StrEnum):
    """The Open vSwitch datapath in which rail and spine switches forward packets."""

    KERNEL = "kernel"
    USER_SPACE = "user-space"


class SpineSelection(StrEnum):
    """How a rail switch selects the spine switch of a packet, while all work."""

    DESTINATION = "destination"
    HASH = "hash"


@dataclass(frozen=True)
class FabricSpec:
    """A fabric of `domains` HB domains with `domain_size` GPUs each.

    Rates are those of the real platform, in bit/s per direction; emulated rates are these divided
    by `bandwidth_scale`. `spines` and `oversubscription` apply where there are spine switches:
    the uplinks of a rail switch carry the sum of its NIC links, divided by `oversubscription`.
    `seed` rotates the choice of spines, reproducibly. With `rail_leaves` of 2 or more, each rail
    of a rail-only fabric is a Clos network of `rail_leaves` leaf and `spines` spine switches.

    With `hb_leaves` of 2 or more, each HB domain has that number of leaf HB switches, with equally
    many GPUs each, and a second-level HB switch above them. The trunk of a leaf carries the sum of
    its HB links, divided by `hb_oversubscription`.

    Spares are included: the last `spare_domains` domains and the last `spare_gpus` GPUs of each
    domain are idle until they replace others. `spare_rail_switches` have ports for all domains,
    but no GPU until an optical switch moves NIC links to them.

    `bucket_depth_s` is the depth of each link's token bucket, in seconds of its rate. `datapath`
    is the requested one; `None` is the machine's default. Delays in seconds and losses as
    fractions of packets apply to each direction of a link; trunks have those of HB links,
    uplinks those of NIC links.

    `spine_selection` is by destination, or by a hash of source and destination, with collisions.
    """

    kind: FabricKind
    domains: int
    domain_size: int
    platform: str
    hb_rate_bps: int
    nic_rate_bps: int
    bandwidth_scale: float
    spines: int
    oversubscription: float = 1.0
    seed: int = 0
    rail_leaves: int = 1
    spare_domains: int = 0
    spare_gpus: int = 0
    spare_rail_switches: int = 0
    bucket_depth_s: float = DEFAULT_DEPTH_S
    datapath: Datapath | None = None
    hb_delay_s: float = 0.0
    hb_loss: float = 0.0
    nic_delay_s: float = 0.0
    nic_loss: float = 0.0
    spine_selection: SpineSelection = SpineSelection.DESTINATION
    hb_leaves: int = 1
    hb_oversubscription: float = 1.0

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "FabricSpec":
        """Build from the fields of a specification that was written as JSON."""
        datapath = fields["datapath"]
        return cls(
            **{
                **fields,
                "kind": FabricKind(fields["kind"]),
                "datapath": None if datapath is None else Datapath(datapath),
                "spine_selection": SpineSelection(fields["spine_selection"]),
            }
        )

    @property
    def job_domains(self) -> int:
        """The number of domains that a job uses, y."""
        return self.domains - self.spare_domains

    @property
    def job_size(self) -> int:
        """The number of GPUs of a domain that a job uses, x."""
        return self.domain_size - self.spare_gpus

    @property
    def job_shape(self) -> tuple[int, int]:
        """The grid that a job uses: its domains, and GPUs in each."""
        return self.job_domains, self.job_size

    @property
    def gpus(self) -> int:
        """The number of GPUs that a job uses, N."""
        return self.job_domains * self.job_size

    @property
    def has_spines(self) -> bool:
        """Whether there are spine switches, for the whole fabric or for each rail."""
        return self.kind is FabricKind.RAIL_OPTIMIZED or self.rail_leaves > 1

    @property
    def hb_impairment(self) -> Impairment:
        """Delay and loss of HB links and of the trunks between HB switches."""
        return Impairment(self.hb_delay_s, self.hb_loss)

    @property
    def nic_impairment(self) -> Impairment:
        """Delay and loss of NIC links and uplinks."""
        return Impairment(self.nic_delay_s, self.nic_loss)

    @property
    def emulated_hb_bps(self) -> float:
        """The rate of an emulated HB link, in bit/s."""
        return self.hb_rate_bps / self.bandwidth_scale

    @property
    def hb_trunk_rate_bps(self) -> float:
        """The real platform's rate of the trunk above a leaf HB switch, in bit/s."""
        return self.domain_size / self.hb_leaves * self.hb_rate_bps / self.hb_oversubscription

    @property
    def emulated_hb_trunk_bps(self) -> float:
        """The rate of an emulated trunk above a leaf HB switch, in bit/s."""
        return self.hb_trunk_rate_bps / self.bandwidth_scale

    @property
    def emulated_nic_bps(self) -> float:
        """The rate of an emulated NIC link, in bit/s."""
        return self.nic_rate_bps / self.bandwidth_scale

    @property
    def emulated_uplink_bps(self) -> float:
        """The rate of one emulated uplink from a rail switch to a spine switch, in bit/s."""
        downlinks_bps = self.domains / self.rail_leaves * self.emulated_nic_bps
        return downlinks_bps / (self.spines * self.oversubscription)
