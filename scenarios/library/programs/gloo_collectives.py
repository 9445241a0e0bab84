"""PyTorch's AllReduce and all-to-all over its gloo backend, with their results checked.

    sudo ./railbed exec quickstart --image IMAGE -- python3 THIS_FILE [BYTES]

`testbed/program_image.sh python3-torch python3-numpy` makes IMAGE.
"""

import sys
import time

import torch
import torch.distributed as dist


def main(size: int) -> None:
    """Run both collectives once to warm up, then once on the clock."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    numbers = size // 4 // ranks * ranks
    for timed in (False, True):
        mine = torch.full((numbers,), float(rank))
        dist.barrier()
        begun_s = time.monotonic()
        dist.all_reduce(mine)
        reduced_s = time.monotonic() - begun_s
        assert bool((mine == ranks * (ranks - 1) / 2).all())
        parts = torch.arange(ranks).repeat_interleave(numbers // ranks)
        outgoing = (parts + rank * ranks).float()
        got = torch.empty_like(outgoing)
        dist.barrier()
        begun_s = time.monotonic()
        dist.all_to_all_single(got, outgoing)
        exchanged_s = time.monotonic() - begun_s
        assert bool((got == (parts * ranks + rank).float()).all())
        if timed:
            print(
                f"{numbers * 4} bytes, results right: AllReduce {reduced_s:.2f} s, "
                f"all-to-all {exchanged_s:.2f} s"
            )
    dist.barrier()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
