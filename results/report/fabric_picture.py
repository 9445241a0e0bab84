"""A fabric drawn: rails as columns, HB domains as rows, links by their use, failed parts marked."""

from collections.abc import Collection, Mapping

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from model.fabric.topology import Link, LinkKind, Topology, lane_of
from model.sentences import counted
from results.figures.kit import Picture, drawing
from results.report.analysis import LinkUse

Place = tuple[float, float]
COLOURS = "viridis_r"
FAILED = "#b00020"
# In points: a link in full use, of a fabric whose columns have room for it.
WIDEST = 3.0
# The column of HB switches, left of the GPUs, and how far below GPUs their leaf is.
LEFT, LEAF_BELOW = -0.9, 0.36
TIER_HEIGHT = 1.1
# Between the columns of a large fabric, links get less room, and GPUs are dots, of these points.
NAMED_UP_TO = 64
DOT = 5.0
# Inches: a letter of a name, and the frame of a name with the gap to the next one.
LETTER, FRAME = 0.06, 0.15
# Inches beside the columns, and what follows the name of a failed part.
SCALE, CROSS = 0.9, " ✕"


def fabric_picture(
    topology: Topology, use: Mapping[str, LinkUse], failed: Collection[str], name: str
) -> Picture:
    """Draw a fabric, its links by their use, and what `failed` names: links, GPUs, switches."""
    places = _places(topology)
    rows, columns = topology.spec.domains, _columns(topology)
    width, height = min(9.0, 1.8 + 0.95 * columns), min(9.0, 1.9 + 0.72 * rows)
    with drawing(height, max(width, _named_width(topology))) as figure:
        axes = figure.add_subplot()
        axes.set_axis_off()
        scale = ScalarMappable(Normalize(0, 1), COLOURS)
        for link in topology.links:
            _draw_link(axes, topology, link, places, use.get(link.name), failed)
        _draw_nodes(axes, topology, places, failed)
        figure.colorbar(scale, ax=axes, label="share of the rate in use", shrink=0.6, pad=0.01)
    return Picture(name, _sentence(topology, use, failed), figure)


def _columns(topology: Topology) -> int:
    """As many columns as GPUs of a domain or switches of a tier stand beside each other."""
    return max(topology.spec.domain_size, *map(len, topology.tiers))


def _named_width(topology: Topology) -> float:
    """The width in inches at which no name of a switch covers the next one."""
    columns = _columns(topology)
    letters = ((len(tier), max(map(len, tier)) + len(CROSS)) for tier in topology.tiers)
    names_in = max((switches * (LETTER * most + FRAME) for switches, most in letters), default=0)
    return SCALE + names_in * (columns + 0.5 - LEFT) / columns


def _places(topology: Topology) -> dict[str, Place]:
    """Put every node in a grid: a row for each tier of switches, then a row a domain."""
    rows, columns = topology.spec.domains, _columns(topology)
    step = columns / topology.spec.domain_size
    places: dict[str, Place] = {
        gpu.name: ((gpu.rail + 0.5) * step - 0.5, rows - gpu.domain) for gpu in topology.gpus
    }
    # HB switches are left of their row, leaves of two tiers below their GPUs.
    places |= {name: (LEFT, rows - row) for row, name in enumerate(topology.hb_switches)}
    for name in topology.hb_leaves:
        gpus = [gpu for link in topology.links_below(name) for gpu in topology.gpus_below(link)]
        middle = (places[gpus[0].name][0] + places[gpus[-1].name][0]) / 2
        places[name] = (middle, rows - gpus[0].domain - LEAF_BELOW)
    for number, tier in enumerate(topology.tiers, 1):
        height, step = rows + TIER_HEIGHT * number, columns / max(1, len(tier))
        places |= {name: ((n + 0.5) * step - 0.5, height) for n, name in enumerate(tier)}
    return places


def _draw_link(
    axes: Axes,
    topology: Topology,
    link: Link,
    places: Mapping[str, Place],
    use: LinkUse | None,
    failed: Collection[str],
) -> None:
    points = _line(topology, link, places)
    x, y = zip(*points, strict=True)
    if link.name in failed:
        axes.plot(x, y, color=FAILED, linewidth=2, linestyle=(0, (2, 2)), zorder=3)
        between = points[(len(points) - 1) // 2 : len(points) // 2 + 1]
        middle = np.mean(between, axis=0)
        axes.plot(*middle, "X", color=FAILED, markersize=10, markeredgecolor="white", zorder=5)
    else:
        share = min(1.0, use.share) if use else 0.0
        width = 0.8 + WIDEST / max(1, topology.spec.domains / 4) * share
        axes.plot(x, y, color=colormaps[COLOURS](share), linewidth=width, zorder=1)


def _line(topology: Topology, link: Link, places: Mapping[str, Place]) -> list[Place]:
    """The corners of a link: NIC links go up beside their column, HB links or trunks left."""
    (x, y), (to_x, to_y) = places[link.lower.node], places[link.upper.node]
    if link.kind is LinkKind.UPLINK or (link.kind is LinkKind.HB and topology.hb_leaves):
        return [(x, y), (to_x, to_y)]
    if link.kind is LinkKind.NIC:
        gpu, domains = topology.gpu_by_name[link.lower.node], topology.spec.domains
        slot = (lane_of(link) * domains + gpu.domain + 0.5) / (topology.spec.lanes * domains)
        lane = x + 0.16 + 0.6 * slot
        return [(x, y), (lane, y + 0.12), (lane, to_y - 0.25), (to_x, to_y)]
    if link.kind is LinkKind.HB_TRUNK:
        lane = y - 0.12 - 0.1 * (link.upper.number - 0.5) / topology.spec.hb.leaves
    else:
        rail = topology.gpu_by_name[link.lower.node].rail
        lane = y - 0.14 - 0.3 * (rail + 0.5) / topology.spec.domain_size
    return [(x, y), (x - 0.1, lane), (to_x + 0.15, lane), (to_x, to_y)]


def _draw_nodes(
    axes: Axes, topology: Topology, places: Mapping[str, Place], failed: Collection[str]
) -> None:
    gpus = [gpu.name for gpu in topology.gpus]
    dots = {g: places[g] for g in gpus if len(gpus) > NAMED_UP_TO and g not in failed}
    x, y = [x for x, _ in dots.values()], [y for _, y in dots.values()]
    axes.plot(x, y, "o", color="white", markeredgecolor="0.3", markersize=DOT, zorder=4)
    for node in (node for node in places if node not in dots):
        shape, broken = "circle" if node in topology.gpu_by_name else "round", node in failed
        inside, edge, letters = (FAILED, FAILED, "white") if broken else ("white", "0.3", "black")
        box = {"boxstyle": f"{shape},pad=0.25", "facecolor": inside, "edgecolor": edge}
        axes.annotate(
            node + CROSS * broken,
            places[node],
            ha="center",
            va="center",
            fontsize=7,
            color=letters,
            bbox={**box, "linewidth": 0.8},
            zorder=4,
        )
    axes.set_xlim(LEFT - 0.5, _columns(topology))
    axes.set_ylim(0.3, topology.spec.domains + TIER_HEIGHT * len(topology.tiers) + 0.5)


def _sentence(topology: Topology, use: Mapping[str, LinkUse], failed: Collection[str]) -> str:
    spec = topology.spec
    domains, each = counted(spec.domains, "HB domain"), counted(spec.domain_size, "GPU")
    told = f"{spec.kind.value}: {domains} of {each}{spec.remarks}"
    if use:
        busiest = max(use.values(), key=lambda link: link.share)
        told += f"; the busiest link, {busiest.name}, used {busiest.share:.0%} of its rate"
    if failed:
        told += f"; failed: {', '.join(sorted(failed))}"
    return f"{told}."
