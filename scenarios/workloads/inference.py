"""Request loads of a scenario: a model that the fabric's HB domains serve."""

from collections.abc import Iterator
from pathlib import Path

from model.fabric.spec import FabricSpec
from model.job.communicators import Shape
from scenarios.format.issues import Issue, Place
from scenarios.format.training import configuration_name, load_configuration
from scenarios.format.units import MOST_PAIR_BYTES, MOST_S, size_in_bytes
from scenarios.format.workloads import InferenceWorkload
from traffic_gen.workloads.inference import Arrivals, RequestLoad

# Each transfer and each arrival at a GPU is a step, of about half a kilobyte.
MOST_TRANSFERS = 100_000
# A prompt is computed in one HB domain, and its answer in another one.
LEAST_DOMAINS = 2


def inference_task(workload: InferenceWorkload, spec: FabricSpec) -> RequestLoad:
    """A request load on a fabric, in its real size."""
    return _load(workload, *spec.job_shape)


def _load(workload: InferenceWorkload, domains: int, domain_size: int) -> RequestLoad:
    """A request load on a grid of GPUs; raises `InputError` for a wrong configuration."""
    path, token = Path(workload.inference), workload.token_size
    model = load_configuration(path).transformer
    return RequestLoad(
        algorithm=configuration_name(path),
        arrivals=Arrivals(
            workload.requests,
            workload.rate,
            workload.prompt,
            workload.prompt_variation,
            workload.seed,
        ),
        token_bytes=model.cache_bytes if token is None else size_in_bytes(token),
        tensor=workload.tensor or domain_size,
        domains=domains,
        domain_size=domain_size,
    )


def inference_issues(place: Place, workload: InferenceWorkload, shape: Shape) -> Iterator[Issue]:
    """Issues of a request load that does not fit the domains, or is too large."""
    domains, domain_size = shape
    if domains < LEAST_DOMAINS:
        what = f"must be at least {LEAST_DOMAINS} for inference, got {domains}"
        yield Issue(("fabric", "domains"), what, "answers come from another HB domain")
        return
    load = _load(workload, domains, domain_size)
    for key, what, hint in _problems(load, workload.time_dilation):
        yield Issue((*place, key), what, hint)


def _problems(load: RequestLoad, time_dilation: float) -> Iterator[tuple[str, str, str]]:
    """Yield each key that does not fit the others, the issue, and a hint."""
    tensor, size, requests = load.tensor, load.domain_size, load.arrivals.requests
    if size % tensor:
        what = f"replicas of {tensor} GPUs do not fill an HB domain of {size}"
        yield "tensor", what, f"use a divisor of {size}"
    if (count := requests * tensor) > MOST_TRANSFERS:
        what = f"{requests} requests of {tensor} GPUs are {count} transfers"
        yield "requests", f"{what}, of at most {MOST_TRANSFERS}", "use fewer"
    if load.size_bytes > MOST_PAIR_BYTES:
        what = f"the KV caches of all requests have {load.size_bytes:.3g} bytes, more than 1 PB"
        yield "requests", what, "use fewer, or shorter prompts"
    if (last_s := load.last_arrival_s * max(1.0, time_dilation)) > MOST_S:
        what = f"the last request arrives after {last_s:.3g} s, more than a day"
        yield "rate", what, "use a higher one, or fewer requests"
