"""The environment in which each rank of a program finds the others, as torchrun sets it.

Source of the names: PyTorch's documentation of torchrun, "Environment Variables".
"""

from collections.abc import Sequence
from itertools import groupby

from model.fabric.addressing import nic_address
from model.fabric.topology import Gpu

# The port of rank 0 at which ranks meet; torchrun's default.
MASTER_PORT = 29500
NIC_INTERFACE = "nic0"


def rank_environment(rank: int, gpus: Sequence[Gpu]) -> dict[str, str]:
    """Return the variables of a rank; `gpus` has the GPU of each rank, domain by domain.

    An HB domain stands for a node. The address of a rank is that of its NIC, for everyone.
    """
    nodes = [list(node) for _, node in groupby(gpus, key=lambda gpu: gpu.domain)]
    place = next(number for number, node in enumerate(nodes) if gpus[rank] in node)
    addresses = [str(nic_address(gpu)) for gpu in gpus]
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(gpus)),
        "LOCAL_RANK": str(nodes[place].index(gpus[rank])),
        "LOCAL_WORLD_SIZE": str(len(nodes[place])),
        "GROUP_RANK": str(place),
        "GROUP_WORLD_SIZE": str(len(nodes)),
        "MASTER_ADDR": addresses[0],
        "MASTER_PORT": str(MASTER_PORT),
        "RAILBED_ADDRESS": addresses[rank],
        "RAILBED_ADDRESSES": ",".join(addresses),
        # PyTorch's gloo would take the address of the machine's name instead.
        "GLOO_SOCKET_IFNAME": NIC_INTERFACE,
    }
