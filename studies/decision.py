"""A cluster's file, its possible networks with cost and iteration times, modeled, and the answer.

The answer has every design with its figures, the efficient ones, and changes that alter it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import ceil, inf, isclose
from pathlib import Path
from statistics import geometric_mean
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from model.errors import InputError, Problem
from model.fabric.network_cost import NIC_PER_GPU, Equipment, Network, Nics, Prices
from model.fabric.spec import GBIT, PLATFORMS, FabricKind, Planes
from model.sentences import counted
from model.training.iteration import Evaluation, iteration
from model.training.job import Job, cluster_of
from model.training.strategy import used_of_domain
from results.sections.modeled import memory_in_words, three_digits
from results.sections.section import slower_in_words
from scenarios.format.checked_file import Strict, checked
from scenarios.format.document import FileKind, read
from scenarios.format.files import MODEL_ENDING, ConfigurationFile, File, configuration_name
from scenarios.format.issues import Refused, meant
from scenarios.format.prices import DEFAULT
from scenarios.format.training import (
    chosen_object,
    evaluated,
    faster_with_idle,
    load_configuration,
    model_remarks,
    names,
)
from scenarios.format.units import Flag, Platform, Tokens

# Commands that measure a modeled figure on an emulated twin.
MEASURED_BY = {
    "all_to_all_slowdown": "sudo ./railbed run quickstart",
    "losses": "sudo ./railbed failures",
}
FACTORS = (0.25, 4.0)
# The rate of the ports that prices are of.
PRICED_BPS = 400 * GBIT
# Of means of times that are equal.
ROUNDING = 1e-9
HOURS_PER_YEAR, SECONDS_PER_HOUR = 8766, 3600
KIND = FileKind("cluster", "docs/guides/decision.md has an example", "docs/guides/decision.md")

Size = Annotated[int, Field(ge=1, le=2**20, strict=True)]
Ports = Annotated[int, Field(ge=1, le=2, strict=True)]
# Of each model, by its name: a share of the iteration's time, `None` for all of it.
Losses = Sequence[tuple[str, float | None]]


def _even(radix: int) -> int:
    if radix % 2:
        raise ValueError(f"must be an even number, got {radix}")
    return radix


def _existing(configuration: str) -> str:
    if configuration not in names() and not Path(configuration).exists():
        hint = meant(configuration, names(), f"shipped: {', '.join(names())}")
        raise Refused(f"{configuration}: not found", hint)
    return configuration


class TrainedModel(Strict):
    """A model that will be trained: a training configuration, its batch and sequence here.

    Its strategy is searched, or with `search: false` the file's.
    """

    configuration: Annotated[ConfigurationFile, AfterValidator(_existing)]
    batch: Size | None = None
    sequence: Tokens | None = None
    search: Flag = True

    @model_validator(mode="after")
    def _has_a_batch(self) -> Self:
        if self.batch is None and self.configuration.endswith(MODEL_ENDING):
            hint = "add `batch`, the sequences of an iteration"
            raise Refused("is required, as a model's own file does not say it", hint, "batch")
        return self


class ClusterFile(Strict):
    """The cluster of a decision."""

    gpus: Size
    platform: Platform
    radix: Annotated[int, Field(ge=4, le=4096, strict=True), AfterValidator(_even)]
    models: tuple[TrainedModel, ...] = Field(min_length=1)
    domain_sizes: tuple[Size, ...] = ()
    oversubscription: tuple[Annotated[float, Field(ge=1, le=64, strict=True)], ...] = (2.0,)
    nic_ports: tuple[Ports, ...] = Field(default=(1,), min_length=1)
    planes: Planes = Planes.BONDED
    gpus_per_nic: tuple[Size, ...] = Field(default=(1,), min_length=1)
    lifetime_years: float = Field(default=5.0, ge=0.01, le=100, strict=True)
    usd_per_kwh: float = Field(default=0.1, ge=0, le=1000, strict=True)
    prices: File = str(DEFAULT)

    @property
    def own_size(self) -> int:
        """The GPUs of the platform's own HB domains, or all if these are fewer."""
        return min(PLATFORMS[self.platform].domain_size, self.gpus)

    @field_validator("domain_sizes")
    @classmethod
    def _of_the_cluster(cls, sizes: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        gpus = info.data.get("gpus")
        if gpus and max(sizes, default=0) > gpus:
            raise ValueError(f"must be at most the {gpus} GPUs of the cluster, got {max(sizes)}")
        return sizes

    @field_validator("planes")
    @classmethod
    def _of_two_ports(cls, planes: Planes, info: ValidationInfo) -> Planes:
        if planes is Planes.SEPARATE and 2 not in info.data.get("nic_ports", (2,)):
            raise Refused("needs two ports; a NIC has 1 port", "add 2 to nic_ports")
        return planes

    @model_validator(mode="after")
    def _nics_are_within_domains(self) -> Self:
        for size, shared in product((self.own_size, *self.domain_sizes), self.gpus_per_nic):
            if size % shared:
                what = f"must divide the {counted(size, 'GPU')} of an HB domain, got {shared}"
                raise Refused(what, key="gpus_per_nic")
        return self


def load_cluster(path: Path) -> ClusterFile:
    """Read a cluster's file; raises `InputError` with all problems.

    Its configurations and the file of prices are searched from the cluster's folder.
    """
    return checked(read(path, KIND), ClusterFile)


@dataclass(frozen=True)
class Design:
    """Networks for HB domains of `domain_size` GPUs, of which `network` joins those in use.

    A faster NIC has priced ports in several `networks`, each as this one. Designs with the same
    networks are equal, also if a fast NIC has these ports already without `nics` of two ports.
    """

    domain_size: int
    nics: Nics = field(compare=False)
    network: Network
    networks: int

    @property
    def used(self) -> int:
        """The GPUs of a domain that the job uses."""
        return self.network.domain_size

    @property
    def equipment(self) -> Equipment:
        """The switches and transceivers of all networks."""
        one, count = self.network.equipment, self.networks
        return replace(one, switches=count * one.switches, transceivers=count * one.transceivers)

    @property
    def at_risk(self) -> dict[str, float]:
        """The GPUs that a lowest switch cuts off, or slows: with a port in another network."""
        hit = self.network.at_risk
        if self.networks == 1:
            return hit
        return {"gpus_cut_off": 0, "gpus_slowed": sum(hit.values())}

    @property
    def name(self) -> str:
        """Its kind and its domain size, and what differs from one NIC a GPU with one port."""
        kind, ratio = self.network.kind, self.network.oversubscription
        parts = [f"{kind.value}, K = {self.domain_size}"]
        if ratio > 1:
            parts.append(f"spines {ratio:.3g}:1")
        if self.nics.ports > 1:
            parts.append(f"{self.nics.ports} ports, {self.nics.planes.value}")
        if self.nics.gpus_per_nic > 1:
            parts.append(f"{self.nics.gpus_per_nic} GPUs a NIC")
        return ", ".join(parts)


@dataclass(frozen=True)
class Training:
    """A model trained on a design: its best strategy, and the loss when a part fails.

    `losses` are those of the function of this name, `left_out` the remarks on a model's own file,
    on memory that is too small, and on GPUs that are better left idle.
    """

    name: str
    best: Evaluation
    losses: dict[str, float | None]
    left_out: list[str]

    @property
    def tokens_per_s(self) -> float:
        """Trained tokens a second."""
        return self.best.job.batch * self.best.job.transformer.sequence / self.best.iteration_s

    @property
    def all_to_all_slowdown(self) -> float | None:
        """Share of time that all-to-alls lose against full bisection; `None` without experts."""
        job = replace(self.best.job, overlap_experts=False)
        spines = replace(job.cluster, kind=FabricKind.RAIL_OPTIMIZED, oversubscription=1.0)
        ours, full = (
            float(iteration(one, self.best.strategy).expert)
            for one in (job, replace(job, cluster=spines))
        )
        return ours / full - 1 if full else None


def designs(file: ClusterFile) -> Iterator[Design]:
    """Yield rail-optimized, full and oversubscribed, and rail-only with every domain size.

    Each of them with all numbers of ports and of NICs. Designs of one switch without spines repeat,
    and those of NICs whose ports are priced as several.
    """
    own, count = file.own_size, _priced_ports(file.platform)
    shapes = [(FabricKind.RAIL_OPTIMIZED, own, ratio) for ratio in (1.0, *file.oversubscription)]
    shapes += [(FabricKind.RAIL_ONLY, size, 1.0) for size in (own, *file.domain_sizes)]
    for (kind, size, ratio), shared, ports in product(shapes, file.gpus_per_nic, file.nic_ports):
        nics, used = Nics(shared, ports, file.planes), used_of_domain(file.gpus, size)
        # The GPUs in use are spread evenly over their NICs.
        split = Nics(ceil(used / nics.rails(used)), ceil(ports / count), file.planes)
        asked = Network(kind, file.gpus, file.radix, used, ratio, split)
        # the nearest that its switches can have
        built = replace(asked, oversubscription=asked.built_oversubscription)
        yield Design(size, nics, built, count)


def _priced_ports(platform: str) -> int:
    """A NIC's ports as they are priced; a faster NIC has several, each in a network of its own."""
    return ceil(PLATFORMS[platform].nic_rate_bps / PRICED_BPS)


def _pricing(platform: str) -> str | None:
    """What prices assume of a NIC of another rate than that of their ports."""
    rate, ports = PLATFORMS[platform].nic_rate_bps, _priced_ports(platform)
    if rate == PRICED_BPS:
        return None
    counted = "one" if ports == 1 else f"{ports}, each in a network of its own"
    return (
        f"Prices and powers are of ports of {PRICED_BPS // GBIT} Gbit/s: a NIC of {rate // GBIT} "
        f"Gbit/s counts as {counted}."
    )


def trained(file: ClusterFile, design: Design, model: TrainedModel) -> Training:
    """A model's best iteration on a design; raises `InputError` if no strategy fits."""
    given = model.model_dump(include={"batch", "sequence"}, exclude_none=True)
    given |= {"gpus": file.gpus, "platform": file.platform}
    path, network = Path(model.configuration), design.network
    configuration = load_configuration(path, given)
    cluster = cluster_of(file.platform, file.gpus, design.used)
    cluster = replace(
        cluster,
        kind=network.kind,
        oversubscription=network.oversubscription,
        nic=cluster.nic / network.nics.gpus_per_nic,
    )
    job = replace(configuration.job, cluster=cluster)
    evaluation = evaluated(model.configuration, configuration, search=model.search, job=job)
    idle = faster_with_idle(configuration, evaluation, search=model.search)
    left_out = [*(f"{design.name}: {what}" for what in idle), *model_remarks(path)]
    if not evaluation.fits:
        gpu = cluster.accelerator
        needs = memory_in_words(evaluation.memory_bytes, evaluation.host_memory_bytes)
        has = memory_in_words(gpu.memory_bytes, job.offload * gpu.host_memory_bytes)
        left_out = [*left_out, f"memory {needs}: more than {has}"]
    nics = replace(network.nics, ports=max(design.nics.ports, design.networks))
    lost = losses(evaluation, network.rails_on_a_switch, nics)
    return Training(_name(file, model, job), evaluation, lost, left_out)


def _name(file: ClusterFile, model: TrainedModel, job: Job) -> str:
    """A configuration's name, and what tells it from the file's other models."""
    path = Path(model.configuration)
    others = {Path(one.configuration) for one in file.models} - {path}
    name = configuration_name(path)
    if name in map(configuration_name, others):
        name = f"{path.parent.name}/{name}"
    if not model.search:
        name += ", the file's strategy"
    same = {"configuration": model.configuration, "search": model.search}.items()
    if sum(same <= vars(one).items() for one in file.models) > 1:
        name += f", {job.batch} x {job.transformer.sequence} tokens"
    return name


def losses(
    evaluation: Evaluation, rails_of_a_switch: int = 1, nics: Nics = NIC_PER_GPU
) -> dict[str, float | None]:
    """The iteration's losses, as shares of its time, with the same strategy; `None` is all of it.

    Every domain waits for the slowest. A lost link takes a port of a NIC, a lost switch a port of
    the NICs of as many rails as it has. At best, all ports that are left share their traffic
    equally; `to_one`, it is routed. A lost GPU takes its HB domain out of the job, if there is no
    spare.
    """
    cluster = evaluation.job.cluster
    left = cluster.gpus - int(evaluation.strategy.in_domain)
    rails, found = nics.rails(cluster.domain_size), dict[str, float | None]()
    for part, lost in (("nic_link", 1), ("rail_switch", min(rails_of_a_switch, rails))):
        found |= dict.fromkeys((part, f"{part}_to_one"))
        if lost < rails * nics.ports:
            equal, routed = 1 - lost / (rails * nics.ports), routed_shares(rails, lost, nics.ports)
            found[part] = loss_with_nics(evaluation, equal, equal)
            found[f"{part}_to_one"] = loss_with_nics(evaluation, *routed)
    return {**found, "gpu": cluster.gpus / left - 1 if left else None}


def routed_shares(rails: int, lost: int, ports: int) -> tuple[float, float]:
    """The shares of its bandwidth that the busiest NIC has left for rings, and for all-to-alls.

    `lost` rails of a domain miss a port. Traffic stays on a NIC's other ports, if it has any. Else
    that of a pair of GPUs goes by one other rail: in a ring, a GPU sends to one neighbour, so that
    a NIC has two transfers in each step; in an all-to-all, to all domains by all other rails.
    """
    if ports > 1:
        return 1 - 1 / ports, 1 - 1 / ports
    return 1 / (1 + ceil(lost / (rails - lost))), 1 - lost / rails


def loss_with_nics(evaluation: Evaluation, rings: float, all_to_alls: float) -> float:
    """The iteration's loss if NICs have these shares of their bandwidth."""
    cluster = evaluation.job.cluster
    slower = replace(cluster, nic=cluster.nic * rings, scatter=all_to_alls / rings)
    without = iteration(replace(evaluation.job, cluster=slower), evaluation.strategy)
    return float(without.total) / evaluation.iteration_s - 1


def decide_object(file: ClusterFile, prices: Prices) -> dict[str, Any]:
    """All designs of a cluster with cost, power, iteration times and losses, and the answer."""
    evaluated = {
        design: [trained(file, design, model) for model in file.models]
        for design in dict.fromkeys(designs(file))
    }
    decision = Decision(file, prices, evaluated)
    if not all(map(decision.network_usd, evaluated)):
        what = "parts of a network, or their energy, must have a price"
        raise InputError(Problem(file.prices, what, "give ports or transceivers a price"))
    design, above_usd = decision.with_gpus() or (None, 0.0)
    return {
        "schema": "railbed.decide/1",
        "gpus": file.gpus,
        "platform": file.platform,
        "basis": "modeled",
        "measured_by": MEASURED_BY,
        "pricing": _pricing(file.platform),
        "designs": [_design_object(decision, design) for design in evaluated],
        "answer": decision.answer().name,
        "sentence": _sentence(decision),
        "with_gpus": {"answer": design.name, "above_usd_per_gpu": above_usd} if design else None,
        "spares": _spares(decision),
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
        return min(self._own, key=self._mean_usd_per_token)

    def as_cheap(self, chosen: Design) -> list[Design]:
        """The other designs whose networks cost as much for a trained token."""
        usd = self._mean_usd_per_token(chosen)
        others = (one for one in self._own if one != chosen)
        return [one for one in others if isclose(self._mean_usd_per_token(one), usd)]

    def with_gpus(self) -> tuple[Design, float] | None:
        """The next answer as GPUs are counted at a rising price, and the USD of a GPU in its life.

        Of designs of equal cost, the prices of network and GPUs are as the inverse of their times.
        `None` if no design is faster.
        """
        chosen = self.answer()
        seconds_s = {one: self.mean_iteration_s(one) for one in self._own}
        usd_s = {one: self.network_usd(one) * seconds_s[one] for one in self._own}
        faster = [
            (one, (usd_s[one] - usd_s[chosen]) / gained_s / self.file.gpus)
            for one in self._own
            if (gained_s := seconds_s[chosen] - seconds_s[one]) > ROUNDING * seconds_s[one]
        ]
        return min(faster, key=lambda other: other[1], default=None)

    @property
    def _own(self) -> list[Design]:
        return [one for one in self.evaluated if one.domain_size == self.first.domain_size]

    def _mean_usd_per_token(self, design: Design) -> float:
        return geometric_mean(self.usd_per_token(design))

    def is_efficient(self, design: Design) -> bool:
        """Whether the design is Pareto-optimal by price and time."""
        places = {one: (self.usd(one), self.mean_iteration_s(one)) for one in self.evaluated}
        usd, seconds_s = place = places[design]
        return not any(
            other != place and other[0] <= usd and other[1] <= seconds_s
            for other in places.values()
        )

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


def _design_object(decision: Decision, design: Design) -> dict[str, Any]:
    trainings, costs = decision.evaluated[design], decision.usd_per_token(design)
    return {
        "design": design.name,
        "kind": design.network.kind.value,
        "domain_size": design.domain_size,
        "oversubscription": design.network.oversubscription,
        "nic_ports": design.nics.ports,
        "planes": design.nics.planes.value,
        "gpus_per_nic": design.nics.gpus_per_nic,
        "switches": design.equipment.switches,
        "transceivers": design.equipment.transceivers,
        "usd": decision.usd(design),
        "watts": decision.prices.watts(design.equipment),
        **design.at_risk,
        "models": list(map(_training_object, trainings, costs)),
        "efficient": decision.is_efficient(design),
    }


def _training_object(training: Training, usd_per_token: float) -> dict[str, Any]:
    return {
        "configuration": training.name,
        "batch": training.best.job.batch,
        "sequence": training.best.job.transformer.sequence,
        "iteration_s": training.best.iteration_s,
        **chosen_object(training.best),
        "hfu": 100 * training.best.hfu,
        "all_to_all_slowdown_percent": _percent(training.all_to_all_slowdown),
        "losses_percent": {part: _percent(loss) for part, loss in training.losses.items()},
        "network_usd_per_million_tokens": 1e6 * usd_per_token,
        "left_out": training.left_out,
    }


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _sentence(decision: Decision) -> str:
    chosen, first = decision.answer(), decision.first
    said = f"With HB domains of {counted(chosen.domain_size, 'GPU')}, "
    equal = [one.name for one in decision.as_cheap(chosen)]
    if equal:
        said += f"no network costs less for a trained token than {chosen.name}"
    else:
        said += f"the network that costs the least for a trained token is {chosen.name}"
    if chosen != first:
        saved = decision.usd(first) - decision.usd(chosen)
        dearer = "costs", "more than the", "of"
        verb, than, of = dearer if saved < 0 else ("saves", "of", "against")
        slower = decision.mean_iteration_s(chosen) / decision.mean_iteration_s(first) - 1
        said += (
            f": it {verb} {three_digits(abs(saved) / 1e6)} {than} "
            f"{three_digits(decision.usd(first) / 1e6)} million USD {of} {first.name}, and is "
            f"{slower_in_words(slower)}{_over(decision)}"
        )
    said += f". Equal in cost: {'; '.join(equal)}." if equal else "."
    if faster := decision.with_gpus():
        design, above_usd = faster
        said += (
            f" The time of the GPUs is not counted: if a GPU costs more than {above_usd:.0f} USD, "
            f"its host and energy included, {design.name} costs less."
        )
    return said + _larger_domains(decision, chosen)


def _larger_domains(decision: Decision, chosen: Design) -> str:
    """The gain of the fastest design with other HB domains, if it is faster than the answer."""
    fastest = min(decision.evaluated, key=decision.mean_iteration_s)
    gain = decision.mean_iteration_s(chosen) / decision.mean_iteration_s(fastest) - 1
    pace = slower_in_words(-gain)
    if fastest.domain_size == chosen.domain_size or not pace.endswith("faster"):
        return ""
    return (
        f" HB domains of {counted(fastest.domain_size, 'GPU')} would be {pace}{_over(decision)}; "
        "the cost of these domains is not counted."
    )


def _over(decision: Decision) -> str:
    """What a difference of times is taken over, where there are several models."""
    models = len(decision.evaluated[decision.first])
    return f" (geometric mean of {models} models)" if models > 1 else ""


def _spares(decision: Decision) -> list[dict[str, Any]]:
    """What a lost GPU costs the answer, without a spare and with one, and what the spare costs.

    Without a spare, the GPU's domain leaves the job, or goes on with a GPU and a rail less: at
    best, as its tensor parallel degree must divide what is left. A spare has NICs and ports, which
    the network lacks for GPUs of a domain that no job uses.
    """
    design, gpus = decision.answer(), decision.file.gpus
    trainings, used, size = decision.evaluated[design], design.used, design.domain_size
    without = [(one.name, one.losses["gpu"]) for one in trainings]
    short = [(one.name, _loss_of_one(one, design.nics)) for one in trainings]
    domains = gpus // used
    within = "a spare GPU in each domain", gpus + domains, size + 1
    if used < size:
        within = "an idle GPU of its domain", domains * size, size
    return [
        _spare(decision, "none: the domain leaves the job", gpus, used, without),
        _spare(decision, "none: the domain goes on with a GPU less", gpus, used, short),
        _spare(decision, "a spare domain", gpus + used, used, []),
        _spare(decision, *within, []),
    ]


def _loss_of_one(training: Training, nics: Nics) -> float | None:
    """The least loss of an iteration whose domains use a rail less, on a GPU less.

    Rings and all-to-alls are then of the other rails alone, equally. A NIC that the lost GPU shared
    serves the others, and its rail all domains.
    """
    gpus, used = training.best.job.cluster.gpus, int(training.best.strategy.in_domain)
    if used == 1:
        return None
    left = 1 - 1 / used if nics.gpus_per_nic == 1 else 1.0
    return max(loss_with_nics(training.best, left, left), gpus / (gpus - 1) - 1)


def _spare(decision: Decision, name: str, gpus: int, used: int, losses: Losses) -> dict[str, Any]:
    """One way to meet the loss of a GPU, on a network for so many GPUs, `used` of each domain.

    The model that loses the most counts.
    """
    of_model, most = max(
        losses, key=lambda loss: inf if loss[1] is None else loss[1], default=(None, 0.0)
    )
    file, design = decision.file, decision.answer()
    larger = replace(design, network=replace(design.network, gpus=gpus, domain_size=used))
    return {
        "spare": name,
        "idle_gpus": gpus - file.gpus,
        "network_usd": decision.usd(larger) - decision.usd(design),
        "lost_gpu_percent": _percent(most),
        "of_model": of_model,
    }


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
