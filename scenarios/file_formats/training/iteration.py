"""The iteration of a configuration: its best strategy, or a sentence why it has none."""

from model.errors import InputError, Problem
from model.training.search import Evaluation, best
from model.training.strategy import ANY, Wish
from scenarios.file_formats.training.configuration import Configuration


def evaluated(name: str, configuration: Configuration, *, search: bool = False) -> Evaluation:
    """Evaluate the given strategy, its missing degrees searched; with `search`, the best of all.

    A strategy that is given whole need not fit the memory. Raises `InputError` if there is none.
    """
    job, wish = configuration.job, ANY if search else configuration.wish
    found = best(job, wish)
    if found is None and _is_whole(wish):
        found = best(job, wish, must_fit=False)
    if found is None:
        hint = "other GPUs, another batch, or another strategy"
        raise InputError(Problem(name, _reason(configuration, wish), hint))
    return found


def _is_whole(wish: Wish) -> bool:
    return None not in (wish.tensor, wish.pipeline, wish.interleave, wish.microbatch)


def _reason(configuration: Configuration, wish: Wish) -> str:
    job = configuration.job
    if best(job, wish, must_fit=False) is not None:
        size = job.cluster.accelerator.memory_bytes / 1e9
        return f"no strategy fits the {size:g} GB of a GPU of {configuration.platform}"
    split = (
        f"{job.cluster.gpus} GPUs, {job.transformer.layers} layers, {job.transformer.heads} heads"
    )
    asked = ", ".join(f"{key} {value}" for key, value in vars(wish).items() if value is not None)
    of = f" with {asked}" if asked else ""
    what = f"no strategy{of} divides {split} and a batch of {job.batch} sequences evenly"
    if configuration.moe is not None:
        parallel = configuration.moe.expert_parallel
        what += f", with data-parallel ranks that are a multiple of expert_parallel {parallel}"
    if wish.interleave is not None and wish.interleave > 1:
        what += ", and with microbatches that are a multiple of the stages, as interleaving needs"
    return what
