"""The command `decide`: which network for a cluster and the models that it will train."""

from pathlib import Path
from typing import Annotated

import typer

from scenarios.cli.options import AsJson
from scenarios.cli.terminal import err, print_result


def decide(
    cluster: Annotated[Path, typer.Argument(metavar="CLUSTER", help="a cluster's YAML file")],
    figure: Annotated[
        Path | None, typer.Option(metavar="PATH", help="draw price and time: PATH.svg, PATH.png")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare networks for a cluster: cost, power, iteration times, failures, and an answer."""
    from results.tables.decision import print_decision
    from scenarios.decision.cluster_file import load_cluster
    from scenarios.decision.decide import decide_object

    result = decide_object(load_cluster(cluster))
    print_result(result, as_json, print_decision)
    if figure is not None:
        from results.figures.canvas import files
        from results.figures.decision import draw_decision

        draw_decision(result, figure)
        err.print(f"Drawn: {', '.join(map(str, files(figure)))}", soft_wrap=True)
