"""ASTRA-sim's network file of its analytical backend (`network.yml`), as keys of a fabric.

    topology: [ Switch, Switch ]
    npus_count: [ 8, 4 ]
    bandwidth: [ 450, 50 ]     # 2^30 bytes a second of a link
    latency: [ 500, 1000 ]     # ns of a link

The first dimension is the HB domain, the second one joins the NPUs that have the same place in
their domains: it is the rails. A network of one dimension is one HB domain. Latencies are left out:
latencies of an emulated path are longer.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from scenarios.format.checked_file import Strict, checked
from scenarios.format.document import Document
from scenarios.format.issues import Issue
from scenarios.format.units import MOST_IN_NETWORK, rate_text

# Also in braces, and quoted as in JSON.
KEY = re.compile(r"""^[\s{"']*(topology|npus_count|bandwidth|latency)["']?\s*:""", re.MULTILINE)
# Its GB are 2^30 bytes (`bw_GBps_to_Bpns` of the analytical backend).
BITS_PER_GBYTE = 8 * 2**30
# Two NPUs have one link, whatever the kind, and a single one has none; of more, a kind has what no
# switch has.
PAIR = 2
UNLIKE_A_SWITCH = {
    "Ring": "its NPUs have links to two neighbours alone",
    "FullyConnected": "its NPUs have a link for each other NPU, where a switch has one for all",
}
MORE = (
    ": each further one is a network of its own, with a NIC of every NPU; here all NICs of a "
    "domain's rails have one. Write switches above switches as `links`"
)


def is_astra_sim(text: str) -> bool:
    """Whether a text has a line that begins with a key of the network file."""
    return KEY.search(text) is not None


class Dimensions(Strict):
    """Of each dimension: its kind, its NPUs, and the rate of a link."""

    topology: tuple[str, ...] = Field(min_length=1)
    npus_count: tuple[Annotated[int, Field(ge=1, le=MOST_IN_NETWORK, strict=True)], ...]
    bandwidth: tuple[Annotated[float, Field(gt=0, le=1e9, strict=True)], ...]
    latency: Any = None


def read_astra_sim(document: Document) -> dict[str, object]:
    """Return the keys of a fabric; raise `InputError` for any other network."""
    network = checked(document, Dimensions)
    document.refuse(_issues(network))
    size, *domains = network.npus_count
    rates = [rate_text(rate * BITS_PER_GBYTE) for rate in network.bandwidth]
    return {
        "kinds": "rail-only",
        "domains": domains[0] if domains else 1,
        "domain_size": size,
        "hb_rate": rates[0],
        "nic_rate": rates[-1],
    }


def _issues(network: Dimensions) -> Iterator[Issue]:
    """Yield issues of dimensions that are no HB domains and rails, as no switch joins them."""
    kinds, counts, place = network.topology, network.npus_count, ("topology",)
    lengths = [len(entries) for entries in (kinds, counts, network.bandwidth)]
    if len(set(lengths)) > 1:
        what = "topology, npus_count, bandwidth must be equally long"
        yield Issue(place, f"{what}, got {', '.join(map(str, lengths))}")
    elif len(kinds) > PAIR:
        what = "must have one dimension, an HB domain, or two, HB domains and rails, got"
        yield Issue(place, f"{what} {len(kinds)}{MORE}")
    else:
        for joined, kind, count in zip(("an HB domain", "a rail"), kinds, counts, strict=False):
            reason = UNLIKE_A_SWITCH.get(kind, f"known: Switch, {', '.join(UNLIKE_A_SWITCH)}")
            if kind != "Switch" and not (kind in UNLIKE_A_SWITCH and count <= PAIR):
                what = f"{joined} must be a switch, got {kind[:40]!r} of {count} NPUs"
                yield Issue(place, f"{what}: {reason}")
