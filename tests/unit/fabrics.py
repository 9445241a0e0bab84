"""Fabrics and schedules for property tests."""

from hypothesis import strategies as st

from model.fabric import FabricKind, FabricSpec
from model.platforms import GBIT
from model.topology import Topology, build_topology


def spec(
    kind: FabricKind, domains: int, domain_size: int, spines: int = 1, seed: int = 0
) -> FabricSpec:
    """A fabric at DGX H100 rates, slowed down by 20 000."""
    return FabricSpec(
        kind=kind,
        domains=domains,
        domain_size=domain_size,
        platform="dgx-h100",
        hb_rate_bps=3600 * GBIT,
        nic_rate_bps=400 * GBIT,
        bandwidth_scale=20_000,
        spines=spines,
        seed=seed,
    )


def topologies(max_domains: int = 6, max_size: int = 5) -> st.SearchStrategy[Topology]:
    """Fabrics of both kinds and many shapes."""
    return st.builds(
        spec,
        kind=st.sampled_from(FabricKind),
        domains=st.integers(2, max_domains),
        domain_size=st.integers(1, max_size),
        spines=st.integers(1, 6),
        seed=st.integers(0, 20),
    ).map(build_topology)
