"""Claims of section V-A: modeled against published utilization (figure 7)."""

from collections.abc import Callable
from pathlib import Path

from scenarios.file_formats.training.configuration import load_configuration
from scenarios.file_formats.training.iteration import evaluated
from scenarios.studies.paper import published
from scenarios.studies.paper.finding import Finding


def modeled_hfu(model: str) -> float:
    """Our HFU of a model of arXiv 2205.05198, in percent."""
    name = f"korthikanti-{model.lower()}"
    return 100 * evaluated(name, load_configuration(Path(name))).hfu


def published_hfu() -> dict[str, float]:
    """The published HFU of each model of arXiv 2205.05198, in percent."""
    return {row["model"]: float(row["hfu_percent"]) for row in published("selective_recompute")}


def _error(model: str) -> Finding:
    ours, theirs = modeled_hfu(model), published_hfu()[model]
    note = f"our HFU is {ours:.1f} %, the published one {theirs:.1f} %; the value is an error"
    return Finding((abs(ours - theirs),), note)


UTILIZATION_CLAIMS: dict[str, Callable[[], Finding]] = {
    "fig7-1t": lambda: _error("1T"),
    "fig7-22b": lambda: _error("22B"),
}
