"""Request loads of inference: a model that the fabric's HB domains serve.

The model of training is imported only where there is one.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from model.fabric.job_grid import JobGrid
from model.fabric.spec import FabricKind, FabricSpec
from model.workload.generator import Generator
from scenarios.format.files import ConfigurationFile, configuration_name
from scenarios.format.issues import Issue, Place
from scenarios.format.units import (
    MOST_PAIR_BYTES,
    MOST_S,
    Count,
    Degree,
    Scale,
    Seed,
    Size,
    size_in_bytes,
)
from scenarios.format.workloads.work import Excludes, OnFabrics, Work, no_result
from traffic_gen.workloads.inference import Arrivals, RequestLoad

if TYPE_CHECKING:
    from model.training.transformer import Transformer

# Requests of a load, how many in a second, tokens of a prompt, and their variation.
MOST_REQUESTS, MOST_REQUEST_RATE, MOST_TOKENS, MOST_VARIATION = 10_000, 1e9, 10**7, 10.0
# Each transfer and each arrival at a GPU is a step, of about half a kilobyte.
MOST_TRANSFERS = 100_000
# A prompt is computed in one HB domain, and its answer in another one.
LEAST_DOMAINS = 2


class InferenceWorkload(Work):
    """A request load of inference to execute."""

    key = "inference"
    file_keys = ("inference",)
    excludes: ClassVar[Excludes] = no_result("inference")
    needs_whole_grid: ClassVar[bool] = True
    # Only agents wait for arrivals; arrivals and bytes are scaled together.
    generator: ClassVar[Generator] = Generator.AGENT
    size_scale: ClassVar[float] = 1.0

    inference: ConfigurationFile
    """the model that is served: a training configuration, as for an iteration"""
    requests: Count = Field(default=100, le=MOST_REQUESTS)
    """how many requests arrive"""
    rate: float = Field(gt=0, le=MOST_REQUEST_RATE, strict=True)
    """requests in a second of the real platform, on average over all HB domains"""
    prompt: Count = Field(default=1024, le=MOST_TOKENS)
    """tokens of a mean prompt"""
    prompt_variation: float = Field(default=0.0, ge=0, le=MOST_VARIATION, strict=True)
    """standard deviation of the tokens over their mean, log-normal; 0: all the same"""
    token_size: Size | None = None
    """bytes of a token's KV cache; default: keys and values of 16 bit of every head in every
    layer"""
    tensor: Degree | None = None
    """GPUs of a replica of the model; default: a whole HB domain"""
    seed: Seed = 0
    """draws arrivals, prompts, and where they are decoded"""
    time_dilation: Scale
    """emulated seconds for each second on the real platform, of arrivals as well"""
    kinds: OnFabrics = tuple(FabricKind)

    def task(self, spec: FabricSpec) -> RequestLoad:
        """Return the load on a fabric; raises `InputError` for a wrong configuration."""
        return self._load(spec.job_grid)

    def issues(self, place: Place, grid: JobGrid, platform: str) -> Iterator[Issue]:
        """Yield issues of a request load that does not fit the domains, or is too large."""
        if grid.domains < LEAST_DOMAINS:
            what = f"must be at least {LEAST_DOMAINS} for inference, got {grid.domains}"
            yield Issue(("fabric", "domains"), what, "answers come from another HB domain")
            return
        load, requests = self._load(grid), (*place, "requests")
        if grid.size % load.tensor:
            what = f"must divide domain_size, {grid.size}, got {load.tensor}"
            yield Issue((*place, "tensor"), what, f"use a divisor of {grid.size}")
        elif (heads := self._model().heads) % load.tensor:
            what = f"must divide the {heads} heads of {load.algorithm}, got {load.tensor}"
            yield Issue((*place, "tensor"), what)
        if (count := self.requests * load.tensor) > MOST_TRANSFERS:
            what = f"must make at most {MOST_TRANSFERS} transfers, got {count}"
            of = f"{self.requests} requests of {load.tensor} GPUs"
            yield Issue(requests, f"{what}: {of}", "use fewer")
        if load.size_bytes > MOST_PAIR_BYTES:
            what = f"KV caches must have at most 1 PB, got {load.size_bytes:.3g} bytes"
            yield Issue(requests, what, "use fewer, or shorter prompts")
        if (last_s := load.last_arrival_s * max(1.0, self.time_dilation)) > MOST_S:
            what = f"last request must arrive within a day, got {last_s:.3g} s"
            yield Issue((*place, "rate"), what, "use a higher one, or fewer requests")

    def _model(self) -> "Transformer":
        from scenarios.format.training import load_configuration

        # Nobody trains it: a model's own file needs no more.
        untrained = {"batch": 1, "gpus": 1, "platform": "dgx-h100", "sequence": 1}
        return load_configuration(Path(self.inference), untrained).transformer

    def _load(self, grid: JobGrid) -> RequestLoad:
        from scenarios.format.training import model_remarks

        path, token, model = Path(self.inference), self.token_size, self._model()
        tensor = self.tensor or grid.size
        arrivals = self.requests, self.rate, self.prompt, self.prompt_variation, self.seed
        return RequestLoad(
            algorithm=configuration_name(path),
            arrivals=Arrivals(*arrivals),
            token_bytes=model.cache_bytes if token is None else size_in_bytes(token),
            tensor=tensor,
            shards=1 if model.latent else min(tensor, model.key_value_heads or model.heads),
            domains=grid.domains,
            domain_size=grid.size,
            left_out=tuple(model_remarks(path)),
        )
