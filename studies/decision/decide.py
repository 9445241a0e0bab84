"""The answer: every design with its figures, the efficient ones, and changes that alter it."""

from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from model.errors import InputError, Problem
from model.fabric.network_cost import Prices
from scenarios.format.prices import load_prices
from studies.decision.cluster_file import ClusterFile
from studies.decision.designs import (
    Design,
    Training,
    designs,
    network_usd,
    network_usd_per_token,
    trained,
)

SCHEMA = "railbed.decide/1"
# Commands that measure a modeled figure on an emulated twin.
MEASURED_BY = {
    "all_to_all_slowdown": "sudo ./railbed run quickstart",
    "losses": "sudo ./railbed failures",
}
FACTORS = (0.25, 4.0)

Evaluated = dict[Design, list[Training]]


def decide_object(file: ClusterFile) -> dict[str, Any]:
    """All designs of a cluster with cost, power, iteration times and losses, and the answer."""
    prices = load_prices(Path(file.prices)).prices
    evaluated = {
        design: [trained(file, design, model) for model in file.models] for design in designs(file)
    }
    if not all(network_usd(file, design, prices) for design in evaluated):
        what = "parts of a network, or their energy, must have a price"
        raise InputError(Problem(file.prices, what, "give ports or transceivers a price"))
    efficient = _efficient(evaluated, prices)
    return {
        "schema": SCHEMA,
        "gpus": file.gpus,
        "platform": file.platform,
        "basis": "modeled",
        "measured_by": MEASURED_BY,
        "designs": [
            _design(file, design, trainings, prices) | {"efficient": design in efficient}
            for design, trainings in evaluated.items()
        ],
        "answer": _answer(file, evaluated, prices).name,
        "sentence": _sentence(file, evaluated, prices),
        "sensitivities": _sensitivities(file, evaluated, prices),
    }


def _design(
    file: ClusterFile, design: Design, trainings: list[Training], prices: Prices
) -> dict[str, Any]:
    return {
        "design": design.name,
        "kind": design.kind.value,
        "domain_size": design.domain_size,
        "oversubscription": design.oversubscription,
        "switches": design.equipment.switches,
        "transceivers": design.equipment.transceivers,
        "usd": prices.usd(design.equipment),
        "watts": prices.watts(design.equipment),
        "models": [_training(file, design, training, prices) for training in trainings],
    }


def _training(
    file: ClusterFile, design: Design, training: Training, prices: Prices
) -> dict[str, Any]:
    slowdown = training.all_to_all_slowdown
    return {
        "configuration": training.name,
        "iteration_s": training.best.iteration_s,
        "hfu": 100 * training.best.hfu,
        "all_to_all_slowdown_percent": None if slowdown is None else 100 * slowdown,
        "losses_percent": {
            part: None if loss is None else 100 * loss for part, loss in training.losses.items()
        },
        "network_usd_per_million_tokens": 1e6
        * network_usd_per_token(file, design, training, prices),
    }


def _mean_iteration_s(trainings: list[Training]) -> float:
    """One figure for all models: the geometric mean of their iteration times, in seconds."""
    return geometric_mean(training.best.iteration_s for training in trainings)


def _efficient(evaluated: Evaluated, prices: Prices) -> set[Design]:
    """The Pareto-optimal designs by price and time."""
    places = {
        design: (prices.usd(design.equipment), _mean_iteration_s(trainings))
        for design, trainings in evaluated.items()
    }
    return {
        design
        for design, place in places.items()
        if not any(
            other != place and other[0] <= place[0] and other[1] <= place[1]
            for other in places.values()
        )
    }


def _answer(file: ClusterFile, evaluated: Evaluated, prices: Prices) -> Design:
    """The design whose network costs the least for a trained token, over all models.

    Only designs with the platform's own HB domains count: the cost of larger ones is not known.
    """
    own = next(iter(evaluated)).domain_size

    def usd(design: Design) -> float:
        costs = (network_usd_per_token(file, design, one, prices) for one in evaluated[design])
        return geometric_mean(costs)

    return min((design for design in evaluated if design.domain_size == own), key=usd)


def _sentence(file: ClusterFile, evaluated: Evaluated, prices: Prices) -> str:
    chosen = _answer(file, evaluated, prices)
    first = next(iter(evaluated))
    saved = prices.usd(first.equipment) - prices.usd(chosen.equipment)
    slower = _mean_iteration_s(evaluated[chosen]) / _mean_iteration_s(evaluated[first]) - 1
    pace = "slower" if slower >= 0 else "faster"
    return (
        f"Of networks with HB domains of {chosen.domain_size} GPUs, {chosen.name} costs the least "
        f"for a trained token: it saves {saved / 1e6:.1f} of "
        f"{prices.usd(first.equipment) / 1e6:.1f} million USD against {first.name}, and is "
        f"{100 * abs(slower):.1f} % {pace}.{_larger_domains(evaluated, chosen)}"
    )


def _larger_domains(evaluated: Evaluated, chosen: Design) -> str:
    """The gain of the fastest design with other HB domains, if it is faster than the answer."""
    fastest = min(evaluated, key=lambda design: _mean_iteration_s(evaluated[design]))
    gain = _mean_iteration_s(evaluated[chosen]) / _mean_iteration_s(evaluated[fastest]) - 1
    if fastest.domain_size == chosen.domain_size or gain <= 0:
        return ""
    return (
        f" HB domains of {fastest.domain_size} GPUs would be {100 * gain:.1f} % faster; "
        "the cost of these domains is not counted."
    )


def _sensitivities(file: ClusterFile, evaluated: Evaluated, prices: Prices) -> list[dict[str, Any]]:
    """The answers with every input at a quarter of its value, and at four times its value."""
    rows = []
    answer = _answer(file, evaluated, prices)
    for factor in FACTORS:
        for key in vars(prices):
            changed = replace(prices, **{key: factor * getattr(prices, key)})
            rows.append((f"{key} x {factor:g}", _answer(file, evaluated, changed)))
        for key in ("lifetime_years", "usd_per_kwh"):
            other = file.model_copy(update={key: factor * getattr(file, key)})
            rows.append((f"{key} x {factor:g}", _answer(other, evaluated, prices)))
    return [
        {"input": name, "answer": design.name, "changes": design != answer} for name, design in rows
    ]
