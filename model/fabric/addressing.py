"""Addresses of the GPU proxies: pure functions of a GPU's domain and rail.

NICs: 10.0.0.0/8, a /17 for each rail, so that one route covers a rail.
HB domains: 172.16.0.0/12, a /23 for each.
"""

from ipaddress import IPv4Address, IPv4Network

from model.fabric.topology import Gpu

NIC_NETWORK = IPv4Network("10.0.0.0/8")
HB_NETWORK = IPv4Network("172.16.0.0/12")
RAIL_PREFIX = 17
DOMAIN_PREFIX = 23

# The network's and the broadcast address of a subnet belong to no host.
MAX_DOMAIN_SIZE = 2 ** (32 - DOMAIN_PREFIX) - 2
MAX_DOMAINS = 2 ** (DOMAIN_PREFIX - HB_NETWORK.prefixlen)

# Rail switches route; every proxy sends to this next hop, whose address no packet ever carries.
GATEWAY = IPv4Address("169.254.1.1")
GATEWAY_MAC = "02:00:00:00:00:01"


def rail_network(rail: int) -> IPv4Network:
    """The addresses of all NICs of a rail."""
    return IPv4Network((int(_rail_base(rail)), RAIL_PREFIX))


def _rail_base(rail: int) -> IPv4Address:
    return NIC_NETWORK.network_address + (rail << (32 - RAIL_PREFIX))


def nic_address(gpu: Gpu) -> IPv4Address:
    """The address of the GPU's NIC."""
    return _rail_base(gpu.rail) + gpu.domain + 1


def domain_network(domain: int) -> IPv4Network:
    """The addresses of an HB domain."""
    base = int(HB_NETWORK.network_address) + (domain << (32 - DOMAIN_PREFIX))
    return IPv4Network((base, DOMAIN_PREFIX))


def hb_address(gpu: Gpu) -> IPv4Address:
    """The GPU's address in its HB domain."""
    return domain_network(gpu.domain)[gpu.rail + 1]


def rail_of(address: IPv4Address) -> int:
    """The rail of a NIC address or of a rail's network address."""
    return int(address) - int(NIC_NETWORK.network_address) >> 32 - RAIL_PREFIX


def gpu_at(address: IPv4Address) -> Gpu:
    """The GPU with this NIC address or HB-domain address."""
    if address in NIC_NETWORK:
        rail = rail_of(address)
        return Gpu(int(address) - int(rail_network(rail).network_address) - 1, rail)
    domain = int(address) - int(HB_NETWORK.network_address) >> 32 - DOMAIN_PREFIX
    return Gpu(domain, int(address) - int(domain_network(domain).network_address) - 1)


def address_of(destination: Gpu, source: Gpu) -> IPv4Address:
    """The address at which `source` reaches `destination`: HB within a domain, else NIC."""
    same_domain = destination.domain == source.domain
    return hb_address(destination) if same_domain else nic_address(destination)


def hb_mac(gpu: Gpu) -> str:
    """The hardware address of `hb0`."""
    return _mac("02:01", int(hb_address(gpu)))


def nic_mac(gpu: Gpu) -> str:
    """The hardware address of `nic0`."""
    return _mac("02:02", int(nic_address(gpu)))


def _mac(prefix: str, number: int) -> str:
    return prefix + "".join(f":{byte:02x}" for byte in number.to_bytes(4, "big"))
