"""How fairly flows shared the busiest link of a case in which they contend, and in what grain."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from model.arrays import Floats, Ints
from model.measurement.records import Repeat
from model.prediction.fluid import busiest
from model.prediction.load import is_contended
from model.prediction.network import FIRST_LINK, Network
from model.workload.transfers.columns import Transfers
from model.workload.transfers.dependencies import begins_s
from results.verdicts.verdict import Reason, Verdict

# With fewer grains in a transfer, contended traffic was up to 5 % away from its model
# (docs/reference/measurements.md, "Contention").
FEWEST_GRAINS = 10


@dataclass(frozen=True)
class Contention:
    """The flows on the link direction that needs the longest for its bytes, where flows contend.

    A flow's share is its measured rate over its modeled one. `jain` is the index of fairness of all
    shares, 1 if they are equal (Jain, Chiu, Hawe 1984). `grain_bytes` of a flow leave at a time: a
    segment of TCP or a packet of RoCE, `grains` of which are in the median of its transfers.
    """

    link: str
    flows: int
    jain: float
    least_share: float
    most_share: float
    grain_bytes: int
    grains: float


def contention(
    transfers: Transfers, pair: Ints, net: Network, modeled_s: Floats, repeats: Sequence[Repeat]
) -> Contention | None:
    """Compare the flows on the busiest link with their model; `None` where none contend.

    `pair` is the pair of each transfer in the network, `modeled_s` the prediction of its arrival.
    """
    complete = [repeat for repeat in repeats if repeat.complete]
    if not complete or not is_contended(transfers, pair, net):
        return None
    _, hop = busiest(transfers.size_bytes, pair, net)
    number = FIRST_LINK + net.hops.index(hop)
    on_link = np.flatnonzero((net.paths[pair] == number).any(axis=1))
    wanted_s = (modeled_s - begins_s(transfers, modeled_s))[on_link]
    shares = wanted_s / _lasted_s(complete, on_link)
    grain_bytes = np.where(net.by_roce[pair[on_link]], net.roce.mtu, net.segment_bytes)
    return Contention(
        link=f"{hop.link.name} from {hop.sender}",
        flows=len(on_link),
        jain=float(shares.sum() ** 2 / (len(shares) * (shares**2).sum())),
        least_share=float(shares.min()),
        most_share=float(shares.max()),
        grain_bytes=int(grain_bytes.max()),
        grains=float(np.median(transfers.size_bytes[on_link] / grain_bytes)),
    )


def _lasted_s(repeats: Sequence[Repeat], numbers: Ints) -> Floats:
    """Return the mean time of each transfer from its first byte to its arrival, in seconds."""
    lasted: dict[int, list[int]] = {number: [] for number in numbers.tolist()}
    for repeat in repeats:
        for record in repeat.records:
            if record.transfer in lasted:
                lasted[record.transfer].append(max(1, record.arrived_ns - record.started_ns))
    return np.array([fmean(times) for times in lasted.values()]) / 1e9


def grain_reasons(found: Contention | None) -> Iterator[Reason]:
    """Yield a note if flows contend in grains that are too coarse to trust their sharing."""
    if found is not None and found.grains < FEWEST_GRAINS:
        what = f"flows that contend for a link take turns of {found.grain_bytes / 1e3:.3g} kB"
        part = "all" if found.grains <= 1 else f"{1 / found.grains:.0%}"
        yield Verdict.PASS, f"{what}, {part} of a transfer: too coarse to trust how they share it"
