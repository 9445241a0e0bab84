"""Seed the kernel's random numbers (random(4)), and sleep for a time that follows from the seed.

    python3 seed.py SEED

Hash functions, port numbers and sequence numbers follow the random numbers; after the sleep, the
machine's periodic work meets the program at another phase.
"""

import fcntl
import hashlib
import struct
import sys
import time

RNDADDENTROPY = 0x40085203  # linux/random.h
# Most timers and samples repeat within this time.
PERIOD_S = 0.1


def main(seed: str, period_s: float = PERIOD_S) -> None:
    """Give the kernel 256 bits that it trusts, and sleep for a part of the period."""
    bits = hashlib.sha256(seed.encode()).digest()
    with open("/dev/urandom", "wb") as pool:
        request = struct.pack("ii", 8 * len(bits), len(bits)) + bits
        fcntl.ioctl(pool, RNDADDENTROPY, request)
    time.sleep(period_s * bits[0] / 256)


if __name__ == "__main__":
    main(sys.argv[1])
