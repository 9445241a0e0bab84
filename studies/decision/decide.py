"""The answer: every design with its figures, the efficient ones, and changes that alter it."""

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from model.errors import InputError, Problem
from model.fabric.network_cost import Prices
from scenarios.format.prices import load_prices
from studies.decision.designs import ClusterFile, Design, Training, designs, trained

SCHEMA = "railbed.decide/1"
# Commands that measure a modeled figure on an emulated twin.
MEASURED_BY = {
    "all_to_all_slowdown": "sudo ./railbed run quickstart",
    "losses": "sudo ./railbed failures",
}
FACTORS = (0.25, 4.0)
HOURS_PER_YEAR, SECONDS_PER_HOUR = 8766, 3600


def decide_object(file: ClusterFile) -> dict[str, Any]:
    """All designs of a cluster with cost, power, iteration times and losses, and the answer."""
    evaluated = {
        design: [trained(file, design, model) for model in file.models] for design in designs(file)
    }
    decision = Decision(file, load_prices(Path(file.prices)).prices, evaluated)
    if not all(map(decision.network_usd, evaluated)):
        what = "parts of a network, or their energy, must have a price"
        raise InputError(Problem(file.prices, what, "give ports or transceivers a price"))
    return {
        "schema": SCHEMA,
        "gpus": file.gpus,
        "platform": file.platform,
        "basis": "modeled",
        "measured_by": MEASURED_BY,
        "designs": [_design(decision, design) for design in evaluated],
        "answer": decision.answer().name,
        "sentence": _sentence(decision),
        "sensitivities": _sensitivities(decision),
    }


@dataclass(frozen=True)
class Decision:
    """The designs of a cluster, and each of its models trained on each of them."""

    file: ClusterFile
    prices: Prices
    evaluated: dict[Design, list[Training]]

    @property
    def first(self) -> Design:
        """Rail-optimized, full, with the platform's own HB domains."""
        return next(iter(self.evaluated))

    def answer(self) -> Design:
        """The design whose network costs the least for a trained token, over all models.

        Only designs with the platform's own HB domains count: the cost of larger ones is not known.
        """
        own = [one for one in self.evaluated if one.domain_size == self.first.domain_size]
        return min(own, key=lambda one: geometric_mean(self.usd_per_token(one)))

    def is_efficient(self, design: Design) -> bool:
        """Whether the design is Pareto-optimal by price and time."""
        place = self._place(design)
        others = map(self._place, self.evaluated)
        return not any(
            other != place and other[0] <= place[0] and other[1] <= place[1] for other in others
        )

    def _place(self, design: Design) -> tuple[float, float]:
        return self.usd(design), self.mean_iteration_s(design)

    def mean_iteration_s(self, design: Design) -> float:
        """One figure for all models: the geometric mean of their iteration times, in seconds."""
        return geometric_mean(training.best.iteration_s for training in self.evaluated[design])

    def usd(self, design: Design) -> float:
        """The price of the network."""
        return self.prices.usd(design.equipment)

    def network_usd(self, design: Design) -> float:
        """The network's price, and that of its energy over its lifetime."""
        hours = self.file.lifetime_years * HOURS_PER_YEAR
        energy = self.prices.watts(design.equipment) / 1000 * hours * self.file.usd_per_kwh
        return self.usd(design) + energy

    def usd_per_token(self, design: Design) -> list[float]:
        """For each model, `network_usd` over the tokens trained in the network's lifetime."""
        usd = self.network_usd(design)
        seconds = self.file.lifetime_years * HOURS_PER_YEAR * SECONDS_PER_HOUR
        return [usd / (one.tokens_per_s * seconds) for one in self.evaluated[design]]


def _design(decision: Decision, design: Design) -> dict[str, Any]:
    trained_at = zip(decision.evaluated[design], decision.usd_per_token(design), strict=True)
    return {
        "design": design.name,
        "kind": design.kind.value,
        "domain_size": design.domain_size,
        "oversubscription": design.oversubscription,
        "switches": design.equipment.switches,
        "transceivers": design.equipment.transceivers,
        "usd": decision.usd(design),
        "watts": decision.prices.watts(design.equipment),
        "models": [_training(*one) for one in trained_at],
        "efficient": decision.is_efficient(design),
    }


def _training(training: Training, usd_per_token: float) -> dict[str, Any]:
    return {
        "configuration": training.name,
        "iteration_s": training.best.iteration_s,
        "hfu": 100 * training.best.hfu,
        "all_to_all_slowdown_percent": _percent(training.all_to_all_slowdown),
        "losses_percent": {part: _percent(loss) for part, loss in training.losses.items()},
        "network_usd_per_million_tokens": 1e6 * usd_per_token,
    }


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _sentence(decision: Decision) -> str:
    chosen, first = decision.answer(), decision.first
    saved = decision.usd(first) - decision.usd(chosen)
    slower = decision.mean_iteration_s(chosen) / decision.mean_iteration_s(first) - 1
    pace = "slower" if slower >= 0 else "faster"
    return (
        f"Of networks with HB domains of {chosen.domain_size} GPUs, {chosen.name} costs the least "
        f"for a trained token: it saves {saved / 1e6:.1f} of "
        f"{decision.usd(first) / 1e6:.1f} million USD against {first.name}, and is "
        f"{100 * abs(slower):.1f} % {pace}.{_larger_domains(decision, chosen)}"
    )


def _larger_domains(decision: Decision, chosen: Design) -> str:
    """The gain of the fastest design with other HB domains, if it is faster than the answer."""
    fastest = min(decision.evaluated, key=decision.mean_iteration_s)
    gain = decision.mean_iteration_s(chosen) / decision.mean_iteration_s(fastest) - 1
    if fastest.domain_size == chosen.domain_size or gain <= 0:
        return ""
    return (
        f" HB domains of {fastest.domain_size} GPUs would be {100 * gain:.1f} % faster; "
        "the cost of these domains is not counted."
    )


def _sensitivities(decision: Decision) -> list[dict[str, Any]]:
    """The answers with every input at a quarter of its value, and at four times its value."""
    prices, file, answers = decision.prices, decision.file, dict[str, Design]()
    for factor in FACTORS:
        for key, value in vars(prices).items():
            changed = replace(decision, prices=replace(prices, **{key: factor * value}))
            answers[f"{key} x {factor:g}"] = changed.answer()
        for key in ("lifetime_years", "usd_per_kwh"):
            other = file.model_copy(update={key: factor * getattr(file, key)})
            answers[f"{key} x {factor:g}"] = replace(decision, file=other).answer()
    return [
        {"input": name, "answer": design.name, "changes": design != decision.answer()}
        for name, design in answers.items()
    ]
