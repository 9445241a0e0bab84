"""The hash of a flow, by which it takes one of several paths or ports."""

from hashlib import blake2b


def flow_hash(*fields: object) -> int:
    """Return 32 bits of a hash of the fields that tell a flow from others.

    Flows collide as balls thrown into bins do. Those of a CRC, which is linear, would not: in an
    all-to-all over a power of two of spines, they fill all links evenly.
    """
    text = " ".join(map(str, fields))
    return int.from_bytes(blake2b(text.encode(), digest_size=4).digest())
