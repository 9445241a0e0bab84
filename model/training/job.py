"""A training job: the model, its batch, and the machine that trains it."""

from dataclasses import dataclass

from model.fabric.platforms import PLATFORMS
from model.fabric.spec import FabricKind
from model.training.accelerators import ACCELERATORS, Accelerator
from model.training.transformer import Recomputation, Transformer

BITS_PER_BYTE = 8


@dataclass(frozen=True)
class Cluster:
    """`gpus` GPUs in HB domains of `domain_size`.

    `hb` and `nic` are a GPU's bandwidths into its domain and of its NIC, in bytes/s per direction.
    An oversubscribed rail-optimized network slows traffic that rings do not keep on their rails:
    all-to-alls.
    """

    gpus: int
    domain_size: int
    hb: float
    nic: float
    accelerator: Accelerator
    kind: FabricKind = FabricKind.RAIL_ONLY
    oversubscription: float = 1.0


@dataclass(frozen=True)
class Job:
    """An iteration over `batch` sequences on a cluster.

    Without sequence parallelism, all tensor-parallel ranks repeat layer norms and dropouts.
    """

    transformer: Transformer
    batch: int
    recomputation: Recomputation
    cluster: Cluster
    sequence_parallel: bool = True


def cluster_of(platform: str, gpus: int, domain_size: int | None = None) -> Cluster:
    """`gpus` GPUs of a known platform, in its own HB domains or in others.

    A cluster with fewer GPUs than a domain is one domain.
    """
    rates = PLATFORMS[platform]
    size = min(domain_size or rates.domain_size, gpus)
    hb, nic = (rate / BITS_PER_BYTE for rate in (rates.hb_rate_bps, rates.nic_rate_bps))
    return Cluster(gpus, size, hb, nic, ACCELERATORS[platform])
