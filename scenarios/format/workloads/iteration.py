"""Training iterations: a configuration, reduced to the GPUs of a fabric.

The model of training is imported only where there is one.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from model.fabric.job_grid import JobGrid
from model.fabric.spec import FabricSpec
from scenarios.format.files import ConfigurationFile, configuration_name
from scenarios.format.issues import Issue, Place
from scenarios.format.units import Batch, Degree, Flag, Gpus, Platform, Tokens
from scenarios.format.workloads.work import ByTime, Excludes, JobPlace, Work, no_result

if TYPE_CHECKING:
    from model.training.reduction import ReducedIteration
    from traffic_gen.workloads.training_iteration import Iteration

# Keys by which two cases of the same iteration may differ, beside its degrees.
VARIANT_KEYS = {"batch", "gpus", "sequence", "platform", "expert", "layers", "zero"}
# Keys that replace those of the configuration.
GIVEN_KEYS = {"batch", "gpus", "sequence", "platform"}


class IterationWork(Work):
    """A training iteration, and how it is reduced to the GPUs."""

    key = "iteration"
    file_keys = ("iteration",)
    excludes: ClassVar[Excludes] = no_result("an iteration")
    needs_whole_grid: ClassVar[bool] = True

    iteration: ConfigurationFile
    """a training configuration: a shipped name (`gpt-146b`), a YAML file, or a model's
    `config.json`, its path from the scenario's folder"""
    batch: Batch | None = None
    """sequences of a whole iteration; default: the configuration's"""
    gpus: Gpus | None = None
    """the same, GPUs"""
    sequence: Tokens | None = None
    """the same, tokens of a sequence"""
    platform: Platform | None = None
    """the same, platform"""
    tensor: Degree | None = None
    """tensor parallel degree here; default: by the rules"""
    pipeline: Degree | None = None
    """the same, pipeline parallel"""
    expert: Degree | None = None
    """the same, expert parallel"""
    microbatches: Degree | None = None
    """microbatches here; default: as many as keep the bubble's share"""
    layers: Degree = 1
    """layers of a stage's chunk here; each stands for several"""
    zero: Flag = True
    """ReduceScatter of the gradients, optimizer's step, AllGather (ZeRO, of the configuration's
    stage); `false`: AllReduce, then the step"""

    def task(self, spec: FabricSpec) -> "Iteration":
        """Return the iteration on a fabric; raises `NoReduction`, or `InputError`."""
        from scenarios.format.training import model_remarks
        from traffic_gen.workloads.training_iteration import Iteration

        path = Path(self.iteration)
        reduced, remarks = self._reduced(spec.job_grid), tuple(model_remarks(path))
        return Iteration(configuration_name(path), reduced, spec.kind, self.zero, remarks)

    def issues(self, place: Place, grid: JobGrid, platform: str) -> Iterator[Issue]:
        """Yield an issue of an iteration that cannot be reduced to its grid."""
        from model.training.reduction import NoReduction

        try:
            self._reduced(grid)
        except NoReduction as error:
            hint = "use another grid of GPUs, or other degrees"
            given = self.model_fields_set & set(error.keys)
            key = given.pop() if len(given) == 1 else self.key
            yield Issue((*place, key), str(error), hint)

    @property
    def variant(self) -> str:
        """Its keys beside the degrees, unless they are at their defaults."""
        given = self.model_dump(include=VARIANT_KEYS, exclude_defaults=True)
        return "-".join(f"{key}-{value}".lower() for key, value in given.items())

    def _reduced(self, grid: JobGrid) -> "ReducedIteration":
        from model.training.reduction import Wanted
        from scenarios.format.training import load_configuration, reduced_iteration

        given = self.model_dump(include=GIVEN_KEYS, exclude_none=True)
        configuration = load_configuration(Path(self.iteration), given)
        degrees = self.tensor, self.pipeline, self.microbatches, self.layers, self.expert
        wanted = Wanted(*degrees, self.zero)
        return reduced_iteration(self.iteration, configuration, grid.shape, wanted)


class IterationWorkload(ByTime, IterationWork):
    """A training iteration to execute."""


class IterationJob(IterationWork, JobPlace):
    """A job that executes a training iteration."""
