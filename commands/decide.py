"""The command `decide`: which network for a cluster and the models that it will train."""

from pathlib import Path
from typing import Annotated

import typer

from commands.cost import prices_of
from commands.options import AsJson, Figure
from commands.output import draw_figure, print_result
from results.sections.modeled import decision_sections
from studies.decision import decide_object, load_cluster


def decide(
    cluster: Annotated[Path, typer.Argument(metavar="CLUSTER", help="a cluster's YAML file")],
    figure: Figure = None,
    as_json: AsJson = False,
) -> None:
    """Print the networks of a cluster beside each other, and draw them if asked."""
    file = load_cluster(cluster)
    result = decide_object(file, prices_of(Path(file.prices)))
    if figure is not None:
        from results.figures.paper import draw_decision

        draw_figure(figure, lambda path: draw_decision(result, path))
    print_result(result, as_json, decision_sections)
