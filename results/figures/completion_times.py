"""Completion times of a run's cases, measured beside modeled."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from results.store.raw_tables import CASE

WIDTH_IN, ROW_IN, MARGIN_IN = 7.0, 0.35, 0.9
BAR = 0.38


def completion_times(cases: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw two bars for each case; the whiskers are the fastest and the slowest execution."""
    figure = Figure(figsize=(WIDTH_IN, MARGIN_IN + ROW_IN * len(cases)), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(cases))
    medians = np.array([case["median_s"] for case in cases])
    fastest = np.array([min(case["values_s"]) for case in cases])
    slowest = np.array([max(case["values_s"]) for case in cases])
    spread = [medians - fastest, slowest - medians]
    axes.barh(places - BAR / 2, medians, BAR, xerr=spread, color="0.35", label="measured")
    modeled = [case["modeled_s"] for case in cases]
    axes.barh(places + BAR / 2, modeled, BAR, color="0.8", hatch="///", label="modeled")
    axes.set_yticks(places, [case[CASE] for case in cases])
    axes.invert_yaxis()
    axes.set_xlabel("completion time in emulated seconds")
    axes.legend()
    return figure
