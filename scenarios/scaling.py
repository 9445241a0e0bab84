"""What `auto` chooses: the fastest setting that a machine with two cores is known to carry.

Measured (docs/measuring.md): 16 GPUs at 20 Mbit/s on the NIC and 180 Mbit/s in the HB domain keep
within 1 % of the model at 15 to 50 % of two cores; the budgets are those totals, with a margin.
One HB link is never set faster than the fastest in the library (DGX A100, moe-dgx-a100.yaml).
"""

import math

from model.closed_forms import Grid, completion_s
from model.fabric import FabricSpec
from model.shaping import wire_bytes
from scenarios.scenario import Case

MAX_NIC_BPS = 20e6
MAX_HB_BPS = 240e6
TOTAL_NIC_BPS = 320e6
TOTAL_HB_BPS = 4e9
TARGET_S = 3.0


def auto_bandwidth_scale(gpus: int, hb_rate_bps: float, nic_rate_bps: float) -> float:
    """The smallest round scale that keeps the sum of all links within the budgets."""
    nic_bps = min(MAX_NIC_BPS, TOTAL_NIC_BPS / gpus)
    hb_bps = min(MAX_HB_BPS, TOTAL_HB_BPS / gpus)
    return _round_up(max(nic_rate_bps / nic_bps, hb_rate_bps / hb_bps))


def auto_size_scale(case: Case, spec: FabricSpec) -> float:
    """The round scale that makes an execution take about three seconds, but never longer data."""
    grid = Grid(
        x=spec.job_size,
        y=spec.job_domains,
        hb=spec.emulated_hb_bps / 8,
        nic=spec.emulated_nic_bps / 8,
    )
    size = wire_bytes(1) * case.size_bytes
    full_s = completion_s(case.collective, case.algorithm, case.kind, grid, size)
    return max(1.0, _round_up(full_s / TARGET_S))


def _round_up(number: float) -> float:
    """The next number with two digits that count."""
    step = 10.0 ** (math.floor(math.log10(number)) - 1)
    return round(math.ceil(number / step - 1e-9) * step, 9)
