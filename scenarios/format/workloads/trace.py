"""Traces of other tools: read once, and placed on the GPUs of a fabric."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from model.fabric.job_grid import JobGrid
from model.fabric.spec import FabricSpec
from model.workload.trace import Trace
from model.workload.transfers.proof import ScheduleError
from scenarios.format.document import telling_other_kinds
from scenarios.format.files import File
from scenarios.format.issues import Issue, Place
from scenarios.format.units import Size, Whole, size_in_bytes
from scenarios.format.workloads.work import BySize, Excludes, JobPlace, Work, no_result
from traffic_gen.traces.formats.nodes import Defaults
from traffic_gen.traces.rank_placement import PlacementRule, placed
from traffic_gen.workloads.task import Task

if TYPE_CHECKING:
    from traffic_gen.traces.replay import Replay

# Of what is left out, the first ones may explain why nothing is sent.
MOST_REASONS = 3


class TraceWork(Work):
    """A trace of another tool, and the GPUs of its ranks; only it imports modules of traces."""

    key = "trace"
    file_keys = ("trace",)
    excludes: ClassVar[Excludes] = no_result("a trace")

    trace: File
    """a file, its path from the scenario's folder; with a file for each rank, the folder or one of
    them"""
    placement: tuple[Whole, ...] | PlacementRule = PlacementRule.WRAP
    """the GPU of each rank: `wrap`, `block`, `rails`, or a list of numbers; required where ranks
    are more than GPUs"""
    size: Size | None = None
    """MSCCL XML, MSCCL++ plan, Chakra in chunks: the size of the collective; byte matrix: the bytes
    that a 1 stands for"""

    def task(self, spec: FabricSpec) -> "Replay":
        """Return the trace on a fabric; raises `ValueError` if its placement does not fit."""
        return self._replay(spec.job_grid, spec.platform)

    def size_name(self, _task: Task) -> str:
        """Return the name of the placement."""
        return self.placement.value if isinstance(self.placement, PlacementRule) else "listed"

    def issues(self, place: Place, grid: JobGrid, platform: str) -> Iterator[Issue]:
        """Yield issues of a trace that does not fit its grid; raises `InputError` if damaged."""
        from traffic_gen.traces.formats import byte_matrix, chakra_trace, msccl, mscclpp

        trace = self._read(grid)
        of_chunks = chakra_trace.FORMAT_OF_CHUNKS
        sizeless = msccl.FORMAT, mscclpp.FORMAT, of_chunks, byte_matrix.FORMAT
        if self.size is not None and trace.format not in sizeless:
            what = f"cannot be combined with a trace of {trace.format}, which has sizes"
            yield Issue((*place, "size"), what, f"formats without: {', '.join(sizeless)}")
        if trace.ranks > grid.gpus and "placement" not in self.model_fields_set:
            what = f"is required to put {trace.ranks} ranks on {grid.gpus} GPUs"
            key = ".".join(map(str, (*place, "placement")))
            hint = f"use wrap, block, rails, or more GPUs: --set {key}=wrap"
            yield Issue((*place, "placement"), what, hint)
            return
        try:
            replay = self._replay(grid, platform)
        except ValueError as error:
            yield Issue((*place, "placement"), str(error))
            return
        try:
            replay.steps()
        except ScheduleError as error:
            left_out = "; ".join(f"not replayed: {what}" for what in trace.left_out[:MOST_REASONS])
            yield Issue((*place, "trace"), f"cannot be replayed: {error}", left_out)

    @classmethod
    def files(cls, path: Path) -> list[Path]:
        """Return the files of all ranks."""
        from traffic_gen.traces.reading import files_of

        return files_of(path)

    def _replay(self, grid: JobGrid, platform: str) -> "Replay":
        trace, name = self._read(grid), Path(self.trace).name
        timed = _timed(trace, platform) if trace.modeled else trace
        return _placed(timed, name, self.placement, grid)

    def _read(self, grid: JobGrid) -> Trace:
        path = Path(self.trace)
        size_bytes = None if self.size is None else round(size_in_bytes(self.size))
        versions = tuple(map(_version, self.files(path)))
        # A trace knows domains of one size alone.
        domain_size = 0 if grid.missing else grid.size
        with telling_other_kinds(path, self.key):
            return _read(path, versions, Defaults(grid.gpus, size_bytes, domain_size))


class TraceWorkload(BySize, TraceWork):
    """A trace of another tool to replay."""


class TraceJob(TraceWork, JobPlace):
    """A job that replays a trace."""


def _version(path: Path) -> tuple[int, ...]:
    """Modification time, size and inode of a file; empty if the file cannot be read."""
    with suppress(OSError, ValueError):
        status = path.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino
    return ()


@lru_cache(maxsize=8)
def _read(path: Path, _versions: tuple[tuple[int, ...], ...], defaults: Defaults) -> Trace:
    from traffic_gen.traces.reading import read_trace

    return read_trace(path, defaults)


@lru_cache(maxsize=16)
def _placed(
    trace: Trace, name: str, rule: PlacementRule | tuple[int, ...], grid: JobGrid
) -> "Replay":
    from traffic_gen.traces.replay import Replay

    return Replay(trace, name, placed(rule, trace.ranks, grid), grid)


@lru_cache(maxsize=16)
def _timed(trace: Trace, platform: str) -> Trace:
    """Return the trace with all times on a platform; without one, some compute is left out."""
    from model.training.job import ACCELERATORS

    if (gpu := ACCELERATORS.get(platform)) is not None:
        return trace.timed(gpu.peak_flops, gpu.memory_bandwidth)
    what = f"compute of {trace.modeled} nodes that have num_ops: the fabric names no platform"
    return replace(trace, left_out=(*trace.left_out, what))
