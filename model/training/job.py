"""A training job: the model, its batch, and the GPUs that train it."""

from dataclasses import dataclass
from typing import Any

from model.fabric.spec import PLATFORMS, FabricKind
from model.training.transformer import Recomputation, Transformer

# One number, or one for each strategy.
Numbers = Any
# Share of a GPU's fastest product that all products of a layer reach. Chosen so that a layer of the
# 22B model takes the 20.3 ms of arXiv 2205.05198, table 4 (A100, selective recomputation with
# sequence parallelism); used for every GPU and every model.
PRODUCT_EFFICIENCY = 0.805
# Share of the memory's bandwidth that element-wise kernels reach (Calculon, arXiv 2211.03122:
# 100 MB and more on an A100).
MEMORY_EFFICIENCY = 0.9


@dataclass(frozen=True)
class Accelerator:
    """FLOP/s of 16 bits without sparsity, memory in bytes, and bandwidths in bytes/s.

    The peak, and of the fastest product that was measured; `fastest_fp8` in FP8, `None` without.
    Bandwidths of its memory, of its link to the host in each direction, and its part of the memory
    of the host, in bandwidth and in bytes.
    """

    peak_flops: float
    fastest_flops: float
    memory_bytes: float
    memory_bandwidth: float
    host_link: float
    host_memory_bandwidth: float
    host_memory_bytes: float
    fastest_fp8: float | None = None

    @property
    def product_flops(self) -> float:
        """FLOP/s of the matrix products of a layer."""
        return PRODUCT_EFFICIENCY * self.fastest_flops

    @property
    def streaming_bandwidth(self) -> float:
        """Bytes/s of kernels that the memory limits."""
        return MEMORY_EFFICIENCY * self.memory_bandwidth


# Data sheets of the vendors: NVIDIA A100 80GB SXM, H100 SXM, H200 SXM, H800 SXM, GH200 (96 GB
# HBM3), B200 (DGX, or one of GB200 NVL72), B300 (one of GB300 NVL72), AMD Instinct MI300X and
# MI355X. Fastest products: by PyTorch, github.com/stas00/ml-engineering, compute/accelerator,
# 2026-08-22; of the H800, and of the H200 in 16 bits, those of the H100; of AMD in FP8, where none
# are, the same share of the peak as in 16 bits. Host: PCIe 4 or 5 x16, or NVLink-C2C, and the
# memory's channels over the host's GPUs: two EPYC 7742 (DGX A100), two Xeon 8480C (DGX H100, H200,
# H800 and MI300X servers) or 8570 (DGX B200), two EPYC 9575F (MI355X servers), a Grace for one GPU
# (GH200) or for two (GB200, GB300), each with 480 GB; a DGX has 2 TB, which servers of the H800,
# MI300X and MI355X, sold with any, are taken to have.
ACCELERATORS = {
    "dgx-a100": Accelerator(312e12, 271.2e12, 80e9, 2.039e12, 32e9, 51e9, 250e9),
    "dgx-h100": Accelerator(989e12, 794.5e12, 80e9, 3.35e12, 64e9, 77e9, 250e9, 1402.6e12),
    "dgx-h200": Accelerator(989e12, 794.5e12, 141e9, 4.8e12, 64e9, 77e9, 250e9, 1453.4e12),
    "h800": Accelerator(989e12, 794.5e12, 80e9, 3.35e12, 64e9, 77e9, 250e9, 1402.6e12),
    "mi300x": Accelerator(1307e12, 668.4e12, 192e9, 5.3e12, 64e9, 77e9, 250e9, 1337e12),
    "gh200": Accelerator(989e12, 828.6e12, 96e9, 4.0e12, 450e9, 500e9, 480e9, 1535e12),
    "gb200-nvl72": Accelerator(2500e12, 1822e12, 186e9, 8.0e12, 225e9, 256e9, 240e9, 3615.6e12),
    "dgx-b200": Accelerator(2250e12, 1745e12, 180e9, 8.0e12, 64e9, 90e9, 250e9, 3432.5e12),
    "gb300-nvl72": Accelerator(2500e12, 1769e12, 279e9, 8.0e12, 225e9, 256e9, 240e9, 3353.3e12),
    "mi355x": Accelerator(2517e12, 1565e12, 288e9, 8.0e12, 64e9, 144e9, 250e9, 3129e12),
}


@dataclass(frozen=True)
class Cluster:
    """`gpus` GPUs in HB domains of `domain_size`.

    `hb` and `nic` are a GPU's bandwidths into its domain and of its NIC, in bytes/s per direction.
    An oversubscribed rail-optimized network slows traffic that rings do not keep on their rails:
    all-to-alls. These have `scatter` times the NIC bandwidth of rings: 1 unless a NIC is lost.
    """

    gpus: int
    domain_size: int
    hb: float
    nic: float
    accelerator: Accelerator
    kind: FabricKind = FabricKind.RAIL_ONLY
    oversubscription: float = 1.0
    scatter: float = 1.0


class Sharded:
    """What the stage of ZeRO, `sharding`, makes of gradients and weights (arXiv 1910.02054)."""

    sharding: int

    @property
    def shares_gradients(self) -> bool:
        """Whether the gradients of each microbatch are reduced, instead of their sum."""
        return self.sharding >= 2

    @property
    def shares_weights(self) -> bool:
        """Whether weights are gathered for each pass, instead of once."""
        return self.sharding >= 3

    def reductions(self, microbatches: Numbers) -> Numbers:
        """How often gradients are reduced."""
        return microbatches if self.shares_gradients else 1

    def gathers(self, microbatches: Numbers) -> Numbers:
        """How often weights are gathered."""
        return 2 * microbatches if self.shares_weights else 1


@dataclass(frozen=True)
class Job(Sharded):
    """An iteration over `batch` sequences on a cluster.

    Without sequence parallelism, all tensor-parallel ranks repeat layer norms and dropouts.
    `fused_attention` keeps scores out of memory (FlashAttention, arXiv 2205.14135). `sharding` is
    ZeRO's stage (arXiv 1910.02054): 1, the optimizer's states; 2, gradients; 3, weights as well.
    With `overlap`, gradients and weights are sent while the GPU computes; with `overlap_experts`,
    tokens to and from experts while it computes another microbatch on the multiprocessors that do
    not send (DeepSeek-V3, arXiv 2412.19437, section 3.2.1). `offload` has the host keep the
    optimizer's states and step (ZeRO-Offload, arXiv 2101.06840). With `fp8`, products with weights
    are computed, activations stored, and tokens sent to experts in FP8; all else is in 16 bits, or
    32 (DeepSeek-V3, section 3.3). `wide_gradients` are reduced in 32 bits (Llama 3, arXiv
    2407.21783, section 3.3.2).
    """

    transformer: Transformer
    batch: int
    recomputation: Recomputation
    cluster: Cluster
    sequence_parallel: bool = True
    fused_attention: bool = False
    sharding: int = 1
    overlap: bool = False
    overlap_experts: bool = False
    offload: bool = False
    fp8: bool = False
    wide_gradients: bool = False

    @property
    def weights_speed(self) -> float:
        """How many times as fast as in 16 bits products with weights are computed."""
        gpu = self.cluster.accelerator
        return (gpu.fastest_fp8 or gpu.fastest_flops) / gpu.fastest_flops if self.fp8 else 1.0

    @property
    def gradient_width(self) -> int:
        """How many times as many bytes as a weight a gradient has that is reduced."""
        return 2 if self.wide_gradients else 1

    @property
    def stored_bytes(self) -> int:
        """Bytes of an element of stored activations, and of tokens on their way to experts."""
        return 1 if self.fp8 else 2


def cluster_of(platform: str, gpus: int, domain_size: int | None = None) -> Cluster:
    """Return `gpus` GPUs of a platform; `domain_size` replaces the platform's own.

    A cluster with fewer GPUs than a domain is one domain.
    """
    rates = PLATFORMS[platform]
    size = min(domain_size or rates.domain_size, gpus)
    hb, nic = rates.hb_rate_bps / 8, rates.nic_rate_bps / 8
    return Cluster(gpus, size, hb, nic, ACCELERATORS[platform])
