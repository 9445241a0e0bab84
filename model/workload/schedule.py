"""Schedules: transfers with dependencies, which do what their collective asks.

A buffer is cut into chunks. A schedule says which GPU sends which chunks to which other GPU, and
after which transfers. It is proved when it is built (`model.workload.proof`), so a wrong schedule
cannot be built (the idea of a postcondition apart from the algorithm is msccl's).
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property

from model.workload.collective import Collective
from model.workload.proof import prove
from model.workload.transfers import Transfers


@dataclass(frozen=True, eq=False)
class Schedule:
    """The transfers of one collective over `gpus` ranks, numbered from 0 in order of dependency.

    `size_bytes` is the collective's size as nccl-tests count it: the buffer for AllReduce, the
    gathered buffer for AllGather, the whole input for ReduceScatter, all that a rank holds for
    all-to-all, the root's buffer for Broadcast. Each chunk of the collective is cut into `slices`
    of `chunk_bytes`; every transfer carries whole ones. Raises `ScheduleError` if the transfers do
    not do what the collective asks.
    """

    collective: Collective
    algorithm: str
    gpus: int
    size_bytes: int
    chunk_bytes: int
    transfers: Transfers
    slices: int = 1

    def __post_init__(self) -> None:
        prove(self.collective, self.gpus, self.chunk_bytes, self.transfers, self.slices)

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the schedule's contents."""
        text = repr((self.collective, self.algorithm, self.gpus, self.chunk_bytes))
        fingerprint = hashlib.sha256(text.encode())
        for column in self.transfers.columns():
            fingerprint.update(column.tobytes())
        return fingerprint.hexdigest()[:16]
