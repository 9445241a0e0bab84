"""Open MPI's AllReduce and all-to-all, with their results checked.

    sudo ./railbed exec quickstart --launcher -- mpirun /usr/bin/python3 THIS_FILE

Debian's packages openmpi-bin, python3-mpi4py and python3-numpy are needed.
"""

import sys
import time

import numpy as np
from mpi4py import MPI


def main(size: int) -> None:
    """Run both collectives once to warm up, then once on the clock."""
    everyone = MPI.COMM_WORLD
    rank, ranks = everyone.Get_rank(), everyone.Get_size()
    numbers = size // 8 // ranks * ranks
    for timed in (False, True):
        mine, summed = np.full(numbers, float(rank)), np.empty(numbers)
        everyone.Barrier()
        begun_s = time.monotonic()
        everyone.Allreduce(mine, summed)
        reduced_s = time.monotonic() - begun_s
        assert (summed == ranks * (ranks - 1) / 2).all()
        parts = np.repeat(np.arange(ranks), numbers // ranks)
        outgoing, got = (parts + rank * ranks).astype(float), np.empty(numbers)
        everyone.Barrier()
        begun_s = time.monotonic()
        everyone.Alltoall(outgoing, got)
        exchanged_s = time.monotonic() - begun_s
        assert (got == parts * ranks + rank).all()
        if timed:
            print(
                f"rank {rank} on {MPI.Get_processor_name()}: {numbers * 8} bytes, results right: "
                f"AllReduce {reduced_s:.2f} s, all-to-all {exchanged_s:.2f} s"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
