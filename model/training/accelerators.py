"""Compute and memory of a GPU, and the share of them that a program reaches."""

from dataclasses import dataclass

# Share of the peak that large matrix products reach. Chosen so that a layer of the 22B model takes
# the 20.3 ms of arXiv 2205.05198, table 4 (A100, selective recomputation with sequence
# parallelism); used for every GPU and every model.
PRODUCT_EFFICIENCY = 0.70
# Share of the memory's bandwidth that element-wise kernels reach (Calculon, arXiv 2211.03122:
# 100 MB and more on an A100).
MEMORY_EFFICIENCY = 0.9


@dataclass(frozen=True)
class Accelerator:
    """Peak 16-bit FLOP/s without sparsity, memory in bytes, and its bandwidth in bytes/s."""

    peak_flops: float
    memory_bytes: float
    memory_bandwidth: float

    @property
    def product_flops(self) -> float:
        """FLOP/s of large matrix products."""
        return PRODUCT_EFFICIENCY * self.peak_flops

    @property
    def streaming_bandwidth(self) -> float:
        """Bytes/s of kernels that the memory limits."""
        return MEMORY_EFFICIENCY * self.memory_bandwidth


# Data sheets of the vendors: NVIDIA A100 80GB SXM, H100 SXM, GH200 (96 GB HBM3), B200 (one of
# GB200 NVL72), AMD Instinct MI300X.
ACCELERATORS = {
    "dgx-a100": Accelerator(312e12, 80e9, 2.039e12),
    "dgx-h100": Accelerator(989e12, 80e9, 3.35e12),
    "mi300x": Accelerator(1307e12, 192e9, 5.3e12),
    "gh200": Accelerator(989e12, 96e9, 4.0e12),
    "gb200-nvl72": Accelerator(2500e12, 186e9, 8.0e12),
}
