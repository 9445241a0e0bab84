"""The order in which a pipeline stage computes: 1F1B, and its interleaved form.

MegatronLM (arXiv 2104.04473, section 2.2). With `interleave` chunks of layers a stage, chunk c of
stage s is position `c * stages + s` of the whole model.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain


@dataclass(frozen=True)
class Pass:
    """A forward or backward pass of a microbatch through one chunk of a stage."""

    forward: bool
    microbatch: int
    chunk: int


def stage_order(stage: int, stages: int, microbatches: int, interleave: int = 1) -> list[Pass]:
    """Return the passes of a stage in order.

    First as many forward passes as fill the pipeline behind the stage; then one forward and one
    backward pass in turn; then the backward passes that are left. Interleaving takes whole rounds
    of microbatches: `microbatches` is a multiple of `stages`.
    """
    forward = list(_passes(True, stages, microbatches, interleave))
    backward = list(_passes(False, stages, microbatches, interleave))
    first = min(_warm_up(stage, stages, interleave), len(forward))
    in_turn = zip(forward[first:], backward, strict=False)
    return [*forward[:first], *chain(*in_turn), *backward[len(forward) - first :]]


def _warm_up(stage: int, stages: int, interleave: int) -> int:
    """The number of forward passes before the first backward pass."""
    if interleave == 1:
        return stages - stage - 1
    return 2 * (stages - stage - 1) + (interleave - 1) * stages


def _passes(forward: bool, stages: int, microbatches: int, interleave: int) -> Iterator[Pass]:
    """Yield all passes in one direction: a round of microbatches through each chunk in turn."""
    round_ = stages if interleave > 1 else microbatches
    for first in range(0, microbatches, round_):
        for number in range(interleave):
            chunk = number if forward else interleave - 1 - number
            yield from (Pass(forward, first + one, chunk) for one in range(round_))
