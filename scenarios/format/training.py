"""Training configurations: model, batch, machine and strategy, in files; their iteration."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from model.errors import InputError, Problem
from model.fabric.job_grid import Shape
from model.sentences import counted
from model.training.iteration import Evaluation
from model.training.job import ACCELERATORS, Cluster, Job, cluster_of
from model.training.reduction import ReducedIteration, Wanted, reduced
from model.training.search import CHOICES, Freedom, best
from model.training.strategy import ANY, Wish
from model.training.transformer import Experts, Latent, Recomputation, Transformer
from scenarios.format.checked_file import Strict, checked
from scenarios.format.document import FileKind, read
from scenarios.format.files import ENDINGS, MODEL_ENDING
from scenarios.format.issues import Refused, meant
from scenarios.format.model_files import configuration_document, remarks
from scenarios.format.units import Flag, Gpus, Platform, Whole

SHIPPED = Path(__file__).parent / "configurations"
DEGREES = ("tensor", "pipeline", "data", "expert", "context")

MOST_COUNT, MOST_BATCH = 10**6, 2**24
Count = Annotated[int, Field(ge=1, le=MOST_COUNT, strict=True)]
Batch = Annotated[int, Field(ge=1, le=MOST_BATCH, strict=True)]


class GivenStrategy(Strict):
    """Given degrees; missing ones are searched."""

    tensor: Count | None = None
    pipeline: Count | None = None
    interleave: Count | None = None
    microbatch: Count | None = None
    context: Count = 1


class GivenLatent(Strict):
    """The widths of multi-head latent attention."""

    query_rank: Whole
    key_value_rank: Count
    plain_size: Count
    rotary_size: Count
    value_size: Count


class GivenExperts(Strict):
    """Experts in every `every`-th layer behind `dense_layers`, spread over `expert_parallel` GPUs.

    A missing degree is searched.
    """

    every: Count = 1
    dense_layers: Whole = 0
    experts: Count
    shared_experts: Whole = 0
    top_k: Count
    width: Count | None = None
    capacity: Annotated[float, Field(gt=0, le=MOST_COUNT, strict=True)] | Literal["dropless"] = (
        "dropless"
    )
    expert_parallel: Count | None = None

    @model_validator(mode="after")
    def _are_possible(self) -> Self:
        if self.top_k > self.experts:
            raise Refused(f"must be at most experts, {self.experts}, got {self.top_k}", key="top_k")
        if self.expert_parallel and self.experts % self.expert_parallel:
            what = f"must be a multiple of expert_parallel, {self.expert_parallel}"
            raise Refused(f"{what}, got {self.experts}", key="experts")
        return self

    @property
    def of_model(self) -> Experts:
        """The experts of the model; dropless ones compute no padding."""
        return Experts(
            every=self.every,
            count=self.experts,
            top_k=self.top_k,
            capacity=1.0 if self.capacity == "dropless" else self.capacity,
            width=self.width,
            shared=self.shared_experts,
            dense_layers=self.dense_layers,
        )


class Configuration(Strict):
    """A model, the machine that trains it, and how."""

    layers: Count
    hidden: Count
    heads: Count
    key_value_heads: Count | None = None
    head_size: Count | None = None
    latent: GivenLatent | None = None
    feed_forward: Count | None = None
    gated: Flag = False
    biases: Flag = True
    learned_positions: Flag = True
    tied: Flag = True
    sequence: Count
    vocabulary: Count
    vocabulary_multiple: Count = 1
    moe: GivenExperts | None = None
    batch: Batch
    gpus: Gpus
    platform: Platform
    domain_size: Count | None = None
    recomputation: Recomputation | None = None
    sequence_parallel: Flag = True
    fused_attention: Flag = False
    sharding: Annotated[int, Field(ge=1, le=3, strict=True)] = 1
    overlap: Flag = False
    overlap_experts: Flag = False
    offload: Flag = False
    precision: Literal["bf16", "fp8"] = "bf16"
    gradients: Literal["bf16", "fp32"] = "bf16"
    weigh: tuple[Freedom, ...] = ()
    strategy: GivenStrategy = GivenStrategy()

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        shared, moe = self.key_value_heads or 1, self.moe
        if self.heads % shared:
            what = f"must be a multiple of key_value_heads, {shared}, got {self.heads}"
            raise Refused(what, key="heads")
        if self.hidden % self.heads and not (self.head_size or self.latent):
            what = f"must be a multiple of heads, {self.heads}, without head_size"
            raise Refused(f"{what}, got {self.hidden}", key="hidden")
        if moe is not None and (count := moe.every + moe.dense_layers) > self.layers:
            of = "every" + (" and dense_layers" if moe.dense_layers else "")
            what = f"{of} must be at most layers, {self.layers}, got {count}"
            raise Refused(what, key="moe")
        if self.precision == "fp8" and ACCELERATORS[self.platform].fastest_fp8 is None:
            raise Refused(f"must be bf16, as {self.platform} has no FP8", key="precision")
        return self

    @property
    def transformer(self) -> Transformer:
        """The model."""
        multiple = self.vocabulary_multiple
        others = {
            "vocabulary": -(-self.vocabulary // multiple) * multiple,
            "experts": self.moe.of_model if self.moe else None,
            "latent": Latent(**self.latent.model_dump()) if self.latent else None,
        }
        return Transformer(**self._same(Transformer) | others)

    @property
    def job(self) -> Job:
        """The iteration; its recomputation is searched if it is missing."""
        others = {
            "transformer": self.transformer,
            "recomputation": self.recomputation or Recomputation.NONE,
            "cluster": cluster_of(self.platform, self.gpus, self.domain_size),
            "fp8": self.precision == "fp8",
            "wide_gradients": self.gradients == "fp32",
        }
        return Job(**self._same(Job) | others)

    def _same(self, model: type[Transformer | Job]) -> dict[str, Any]:
        """Return the values that a part of the model has by the names of this file's keys."""
        return self.model_dump(include={field.name for field in fields(model)})

    @property
    def wish(self) -> Wish:
        """The given degrees."""
        expert = self.moe.expert_parallel if self.moe else 1
        return Wish(**self.strategy.model_dump(), expert=expert)

    @property
    def freedoms(self) -> tuple[Freedom, ...]:
        """What the search chooses, beside degrees."""
        missing = [Freedom.RECOMPUTATION] if self.recomputation is None else []
        return tuple(dict.fromkeys([*missing, *self.weigh]))


def names() -> list[str]:
    """The names of the shipped configurations."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def _kind() -> FileKind:
    shipped = f"shipped: {', '.join(names())}"
    return FileKind("training configuration", shipped, "docs/reference/training.md")


def model_remarks(path: Path) -> list[str]:
    """What a configuration does not have of a model's own file, and what it assumes beside it."""
    return remarks(read(path, _kind())) if path.suffix == MODEL_ENDING else []


def load_configuration(path: Path, given: Mapping[str, Any] | None = None) -> Configuration:
    """Read a file, or a shipped configuration by its name; raises `InputError`.

    The file may be a model's own (`config.json`). What is given replaces what the file says.
    """
    shipped = SHIPPED / f"{path.name}.yaml"
    is_name = path.parent == Path() and not os.path.exists(path)
    if is_name and os.path.exists(shipped):
        path = shipped
    elif is_name and path.suffix not in (*ENDINGS, MODEL_ENDING):
        hint = meant(path.name, names(), f"shipped: {', '.join(names())}")
        what = "not found, and no shipped configuration of this name"
        raise InputError(Problem(str(path), what, hint))
    document, given = read(path, _kind()), given or {}
    if path.suffix == MODEL_ENDING:
        document = configuration_document(document, given)
    document.values.update(given)
    return checked(document, Configuration)


@lru_cache(maxsize=64)
def reduced_iteration(
    name: str, configuration: Configuration, shape: Shape, wanted: Wanted
) -> ReducedIteration:
    """Reduce an iteration to a grid of GPUs; raises `NoReduction`, or `InputError`."""
    found = evaluated(name, configuration)
    return reduced(found.job, found.strategy, *shape, wanted)


def evaluated(
    name: str, configuration: Configuration, *, search: bool = False, job: Job | None = None
) -> Evaluation:
    """Evaluate the given strategy, its missing degrees searched; with `search`, the best of all.

    Sequences are long in a file with `context`: a search keeps it, unless it weighs it. A strategy
    that is given whole need not fit the memory. The configuration's job may be on another cluster.
    Raises `InputError` if there is none.
    """
    job, wish, freedoms = job or configuration.job, configuration.wish, configuration.freedoms
    if search:
        wish = replace(ANY, context=wish.context)
    is_whole = None not in vars(wish).values() and not freedoms
    evaluation = best(job, wish, freedoms=freedoms)
    evaluation = evaluation or (best(job, wish, must_fit=False) if is_whole else None)
    if evaluation is None:
        used = _in_powers_of_two(job.cluster)
        fits = best(replace(job, cluster=used), wish, freedoms=freedoms) is not None
        other = f"other GPUs, such as {used.gpus}" if fits else "other GPUs"
        hint = f"use {other}, another batch, or another strategy"
        raise InputError(Problem(name, _reason(configuration, job, wish), hint))
    return evaluation


def faster_with_idle(
    configuration: Configuration, found: Evaluation, *, search: bool = False
) -> Iterator[str]:
    """Yield a remark if a power of two of each domain's GPUs, the others idle, were faster."""
    used = _in_powers_of_two(found.job.cluster)
    if found.strategy.in_domain % used.domain_size:
        job = replace(configuration.job, cluster=used)
        with suppress(InputError):
            other = evaluated("", configuration, search=search, job=job)
            if other.iteration_s < found.iteration_s:
                what = f"{used.gpus} of the {found.job.cluster.gpus} GPUs"
                each = f"{used.domain_size} of each HB domain"
                yield f"{what}, {each}, would take {other.iteration_s:.4f} s"


def _in_powers_of_two(cluster: Cluster) -> Cluster:
    """The GPUs that whole domains have in use if each uses a power of two of them."""
    size = 2 ** (cluster.domain_size.bit_length() - 1)
    return replace(cluster, gpus=cluster.gpus // cluster.domain_size * size, domain_size=size)


def chosen_object(evaluation: Evaluation) -> dict[str, Any]:
    """The strategy, what a search may choose besides, and the part of degrees in an HB domain."""
    job, strategy = evaluation.job, evaluation.strategy
    others = ("interleave", "microbatch")
    return {
        "strategy": {key: getattr(strategy, key) for key in (*DEGREES, *others)},
        "way": {freedom.value: getattr(job, freedom.field) for freedom in CHOICES},
        "in_domain": {key: int(getattr(strategy, f"{key}_inside")) for key in DEGREES},
        "used_of_domain": int(strategy.in_domain),
    }


def _reason(configuration: Configuration, job: Job, wish: Wish) -> str:
    """Say why there is no strategy."""
    if best(job, wish, must_fit=False, freedoms=configuration.freedoms) is not None:
        gpu = job.cluster.accelerator
        offload = job.offload or Freedom.OFFLOAD in configuration.freedoms
        host = f" and {gpu.host_memory_bytes / 1e9:g} GB of its host" if offload else ""
        of_gpu = f"{gpu.memory_bytes / 1e9:g} GB of a GPU of {configuration.platform}"
        return f"no strategy fits the {of_gpu}{host}"
    layers = counted(job.transformer.layers, "layer")
    if (stages := wish.pipeline or 1) > job.transformer.layers:
        return f"pipeline must be at most the {layers}, got {stages}"
    model, given = job.transformer, {key: value for key, value in vars(wish).items() if value}
    split = f"{counted(job.cluster.gpus, 'GPU')}, {layers}, {counted(model.heads, 'head')}"
    told = {k: v for k, v in given.items() if v > 1 or k not in ("expert", "context")}
    of = f" with {', '.join(f'{key} {told[key]}' for key in told)}" if told else ""
    batch = counted(job.batch, "sequence")
    what = f"no strategy{of} divides {split} and a batch of {batch} evenly"
    many, tensor = {key for key, value in given.items() if value > 1}, wish.tensor or 1
    if "expert" in many:
        what += f", with stages of which expert_parallel {wish.expert} divides the GPUs"
    if "context" in many:
        what += f", with tensor and context that divide {model.sequence} tokens"
    elif job.sequence_parallel and model.sequence % tensor:
        what += f", with tensor that divides {model.sequence} tokens, as sequence_parallel needs"
    if model.heads % tensor == 0 and not model.shares_heads(tensor):
        what += f", nor {model.key_value_heads} heads of keys and values"
    if model.experts and not job.sequence_parallel and "tensor" in many:
        what += ", with sequence_parallel, as experts with tensor parallelism need"
    if "interleave" in many:
        what += ", and with microbatches that are a multiple of the stages, as interleaving needs"
    return what
