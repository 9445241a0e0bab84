"""The fields of a fabric's specification in JSON documents, where it is flat."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from model.fabric.shaping import Impairment
from model.fabric.spec import (
    Datapath,
    FabricKind,
    FabricSpec,
    HbNetwork,
    NicNetwork,
    Spares,
    SpineSelection,
)

# The fields in their order, each with its place in the records.
PLACES = {
    "kind": "kind",
    "domains": "domains",
    "domain_size": "domain_size",
    "platform": "platform",
    "hb_rate_bps": "hb.rate_bps",
    "nic_rate_bps": "nic.rate_bps",
    "bandwidth_scale": "bandwidth_scale",
    "spines": "nic.spines",
    "oversubscription": "nic.oversubscription",
    "seed": "seed",
    "rail_leaves": "nic.leaves",
    "spare_domains": "spares.domains",
    "spare_gpus": "spares.gpus",
    "spare_rail_switches": "spares.rail_switches",
    "bucket_depth_s": "bucket_depth_s",
    "datapath": "datapath",
    "hb_delay_s": "hb.impairment.delay_s",
    "hb_loss": "hb.impairment.loss",
    "nic_delay_s": "nic.impairment.delay_s",
    "nic_loss": "nic.impairment.loss",
    "spine_selection": "nic.spine_selection",
    "hb_leaves": "hb.leaves",
    "hb_oversubscription": "hb.oversubscription",
}


def flat(spec: FabricSpec) -> dict[str, Any]:
    """Return the fields of a specification."""
    return {name: attrgetter(place)(spec) for name, place in PLACES.items()}


def grouped(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields as objects within each other, like the records."""
    nested: dict[str, Any] = {}
    for name, place in PLACES.items():
        *groups, last = place.split(".")
        inside = nested
        for group in groups:
            inside = inside.setdefault(group, {})
        inside[last] = fields[name]
    return nested


def spec_of(fields: Mapping[str, Any]) -> FabricSpec:
    """Build a specification from all of its fields, as `flat` returns them."""
    nested = grouped(fields)
    hb, nic, datapath = nested["hb"], nested["nic"], nested["datapath"]
    hb["impairment"] = Impairment(**hb["impairment"])
    nic["impairment"] = Impairment(**nic["impairment"])
    nic["spine_selection"] = SpineSelection(nic["spine_selection"])
    return FabricSpec(
        **{
            **nested,
            "kind": FabricKind(nested["kind"]),
            "hb": HbNetwork(**hb),
            "nic": NicNetwork(**nic),
            "spares": Spares(**nested["spares"]),
            "datapath": None if datapath is None else Datapath(datapath),
        }
    )
