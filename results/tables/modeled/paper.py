"""The tables of the paper's claims, and of the assumptions behind them."""

from typing import Any

from rich.console import Console
from rich.text import Text

from results.tables.style import figures_table, styled_verdict

STYLES = {"met": "green", "differs": "yellow"}


def print_paper(result: dict[str, Any], out: Console) -> None:
    """Print every claim with both values, the reasons of differences, and the sensitivities."""
    table = figures_table("claim", "paper", "ours", "unit", "verdict")
    for claim in result["claims"]:
        verdict = Text(claim["verdict"], STYLES[claim["verdict"]])
        table.add_row(
            claim["id"], _shown(claim["paper"]), _shown(claim["ours"]), claim["unit"], verdict
        )
    out.print(table)
    differing = [claim for claim in result["claims"] if claim["verdict"] == "differs"]
    met = len(result["claims"]) - len(differing)
    out.print(f"\n{met} of {len(result['claims'])} claims are met. What differs:")
    for claim in differing:
        text = f"  {claim['id']}: {claim['claim']}: {claim['why']}"
        out.print(text, soft_wrap=True)
    out.print("\nFigures 8 to 10 with other assumptions, one changed at a time:")
    _print_sensitivities(result["sensitivities"], out)
    out.print(result["assumptions"], soft_wrap=True)


def print_measured(result: dict[str, Any], out: Console) -> None:
    """Print every measured point of the paper's figures against the model at its size."""
    table = figures_table("figure, place, case", "measured", "modeled", "ratio", "")
    for point in result["points"]:
        table.add_row(
            f"{point['figure']}{_where(point['place'])}: {point['case']}",
            f"{point['measured_s']['median']:.3f} s",
            f"{point['modeled_s']:.3f} s",
            f"{point['ratio']:.4f}",
            styled_verdict(point["verdict"]),
        )
    out.print(table)
    out.print(f"The page: {result['page']}", soft_wrap=True)


def _where(place: dict[str, Any]) -> str:
    return "".join(f", {key} {value}" for key, value in place.items())


def _print_sensitivities(rows: list[dict[str, Any]], out: Console) -> None:
    claims = [key for key in rows[0] if key != "setting"]
    table = figures_table("setting", *(claim.removeprefix("fig") for claim in claims))
    for row in rows:
        table.add_row(row["setting"], *(_shown(row[claim]) for claim in claims))
    out.print(table)


def _shown(value: float | list[float]) -> str:
    if isinstance(value, list):
        return " ".join(map(_shown, value))
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
