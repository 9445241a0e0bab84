"""Sizes that a transfer cannot have: refused before anything is built where the file gives them."""

from collections.abc import Iterator, Sequence
from math import inf

from scenarios.format.issues import Issue, Place
from scenarios.format.keys import ScenarioFile
from scenarios.format.workloads import AnyWorkload, CollectiveWork
from scenarios.scenario import Case
from scenarios.workloads.jobs import work_entries

# The agents' header has 32 bits for the length of a transfer.
MAX_TRANSFER_BYTES = 2**32 - 1


def given_size_issues(file: ScenarioFile) -> Iterator[Issue]:
    """Issues of collectives with a given size scale, which need no schedule to be found.

    Building the schedule of a refused collective would take seconds.
    """
    for place, work, shape in work_entries(file):
        if isinstance(work, CollectiveWork):
            scale = _given_scale(file, file.workloads[int(place[1])])
            task = work.on_grid(shape)
            yield from _issues_of(place, "/".join(task.named), scale, task.largest_bytes / scale)


def _given_scale(file: ScenarioFile, workload: AnyWorkload) -> float:
    """Return the size scale that a workload gives; infinity if it is `auto`."""
    if workload.time_dilation is None:
        return inf if workload.size_scale == "auto" else workload.size_scale
    given = file.fabric.bandwidth_scale, workload.time_dilation
    return inf if "auto" in given else float(given[0]) / float(given[1])


def size_issues(cases: Sequence[Case]) -> Iterator[Issue]:
    """Issues of cases that would send more than the real size, or more than a transfer can have."""
    for case in cases:
        place = ("workloads", case.workload)
        most_bytes = case.task.largest_bytes / case.size_scale
        yield from _issues_of(place, case.name, case.size_scale, most_bytes)


def _issues_of(place: Place, name: str, size_scale: float, most_bytes: float) -> Iterator[Issue]:
    if size_scale < 1:
        what = f"{name}: would send {1 / size_scale:.3g} times the real size"
        yield Issue(place, what, "use a time_dilation of at most bandwidth_scale")
    elif most_bytes > MAX_TRANSFER_BYTES:
        what = f"{name}: {most_bytes:.0f} bytes are more than a transfer can have"
        yield Issue(place, what, "use a larger size_scale, or a smaller time_dilation")
