"""The drawing of a fabric: all nodes are there, and no name of a switch covers another."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.text import Annotation

from model.fabric.build import build_topology
from model.fabric.spec import GBIT, FabricKind, FabricSpec
from model.fabric.wiring import Wire
from results.report.fabric_picture import NAMED_UP_TO, fabric_picture
from tests.unit.fabrics import spec, wired


def with_long_names() -> FabricSpec:
    """A fabric whose eight leaf switches have long names, below one core."""
    base = spec(FabricKind.RAIL_OPTIMIZED, 2, 4)
    leaves = {gpu: f"leaf-switch-with-a-long-name-{gpu}" for gpu in base.gpu_names}
    wires = [Wire(gpu, leaf, 400 * GBIT) for gpu, leaf in leaves.items()]
    return wired(base, [*wires, *(Wire(leaf, "core", 400 * GBIT) for leaf in leaves.values())])


@pytest.mark.parametrize(
    "drawn",
    [
        spec(FabricKind.RAIL_OPTIMIZED, 4, 2, spines=16),
        spec(FabricKind.RAIL_OPTIMIZED, 2, 2, spines=40),
        spec(FabricKind.RAIL_OPTIMIZED, 2, 8, spines=16),
        spec(FabricKind.RAIL_ONLY, 4, 4),
        with_long_names(),
    ],
    ids=["wide", "wider", "full", "square", "named"],
)
def test_no_name_covers_another(drawn: FabricSpec) -> None:
    topology = build_topology(drawn)
    failed = topology.tiers[-1][:2]
    figure = fabric_picture(topology, {}, failed, "x").figure
    figure.draw_without_rendering()
    boxes = {}
    for text in figure.axes[0].texts:
        box = text.get_bbox_patch()
        assert box is not None
        boxes[text.get_text()] = box.get_window_extent()
    assert {f"{switch} ✕" for switch in failed} <= set(boxes)
    covered = [
        (one, other) for one, other in combinations(boxes, 2) if boxes[one].overlaps(boxes[other])
    ]
    assert not covered


def test_the_cross_of_a_link_covers_no_name() -> None:
    topology = build_topology(spec(FabricKind.RAIL_OPTIMIZED, 4, 2, spines=4))
    failed = [link.name for link in topology.links]
    axes = fabric_picture(topology, {}, failed, "x").figure.axes[0]
    places = np.array([text.xy for text in axes.texts if isinstance(text, Annotation)])
    crosses = [line.get_xydata() for line in axes.lines if line.get_marker() == "X"]
    assert len(crosses) == len(failed)
    for cross in crosses:
        assert np.abs(places - cross).max(axis=1).min() > 0.2


def test_gpus_of_a_large_fabric_are_dots_apart_from_failed_ones() -> None:
    topology = build_topology(spec(FabricKind.RAIL_ONLY, NAMED_UP_TO // 8 + 1, 8))
    axes = fabric_picture(topology, {}, ("d3g2",), "x").figure.axes[0]
    (dots,) = (line for line in axes.lines if line.get_marker() == "o")
    assert np.size(dots.get_xdata()) == len(topology.gpus) - 1
    gpus = set(topology.gpu_by_name)
    assert [text.get_text() for text in axes.texts if text.get_text()[:4] in gpus] == ["d3g2 ✕"]


def test_one_gpu_is_counted_in_the_singular() -> None:
    topology = build_topology(spec(FabricKind.RAIL_OPTIMIZED, 2, 1, spines=2))
    sentence = fabric_picture(topology, {}, (), "x").sentence
    assert sentence == "rail-optimized: 2 HB domains of 1 GPU."
