"""Addresses of the GPU proxies: pure functions of a GPU's domain and rail.

NICs: 10.0.0.0/8, a /17 for each local rank, and in it a /20 for each lane, which one route covers.
HB domains: 172.16.0.0/12, a /23 for each.
"""

from ipaddress import IPv4Address, IPv4Network

from model.fabric.topology import Gpu

NIC_NETWORK = IPv4Network("10.0.0.0/8")
HB_NETWORK = IPv4Network("172.16.0.0/12")
RAIL_PREFIX, LANE_PREFIX = 17, 20
DOMAIN_PREFIX = 23

RAIL_ADDRESSES = 2 ** (32 - RAIL_PREFIX)
MAX_LANES = 2 ** (LANE_PREFIX - RAIL_PREFIX)
# The network's and the broadcast address of a subnet belong to no host.
MAX_DOMAIN_SIZE = 2 ** (32 - DOMAIN_PREFIX) - 2
MAX_DOMAINS = 2 ** (DOMAIN_PREFIX - HB_NETWORK.prefixlen)

# Rail switches route; every proxy sends to this next hop, whose address no packet ever carries.
GATEWAY = IPv4Address("169.254.1.1")
GATEWAY_MAC = "02:00:00:00:00:01"
# Frames to it stay on their link: no bridge forwards them (IEEE 802.1Q, table 8-1).
NEAREST_BRIDGE = bytes.fromhex("0180c200000e")


def rail_network(rail: int) -> IPv4Network:
    """The addresses of all lanes of the GPUs with this local rank."""
    return IPv4Network((int(_lane_base(Gpu(0, rail))), RAIL_PREFIX))


def lane_network(gpu: Gpu) -> IPv4Network:
    """The addresses of a lane of all GPUs with the same local rank."""
    return IPv4Network((int(_lane_base(gpu)), LANE_PREFIX))


def _lane_base(gpu: Gpu) -> IPv4Address:
    within = (gpu.rail << (32 - RAIL_PREFIX)) + (gpu.lane << (32 - LANE_PREFIX))
    return NIC_NETWORK.network_address + within


def nic_address(gpu: Gpu) -> IPv4Address:
    """The address of the GPU's NIC, by this lane."""
    return _lane_base(gpu) + gpu.domain + 1


def domain_network(domain: int) -> IPv4Network:
    """The addresses of an HB domain."""
    base = int(HB_NETWORK.network_address) + (domain << (32 - DOMAIN_PREFIX))
    return IPv4Network((base, DOMAIN_PREFIX))


def hb_address(gpu: Gpu) -> IPv4Address:
    """The GPU's address in its HB domain."""
    return domain_network(gpu.domain)[gpu.rail + 1]


def is_by_nic(address: str) -> bool:
    """Whether this is the address of a NIC, and not one in an HB domain."""
    return IPv4Address(address) in NIC_NETWORK


def gpu_at(address: IPv4Address) -> Gpu:
    """The GPU with this HB-domain address, or with this NIC address, by its lane."""
    if address in NIC_NETWORK:
        rail, within = divmod(int(address) - int(NIC_NETWORK.network_address), RAIL_ADDRESSES)
        lane, number = divmod(within, RAIL_ADDRESSES // MAX_LANES)
        return Gpu(number - 1, rail).by(lane)
    domain = int(address) - int(HB_NETWORK.network_address) >> 32 - DOMAIN_PREFIX
    return Gpu(domain, int(address) - int(domain_network(domain).network_address) - 1)


def address_of(destination: Gpu, source: Gpu) -> IPv4Address:
    """The address at which `source` reaches `destination`: HB within a domain, else a lane's."""
    same_domain = destination.domain == source.domain
    return hb_address(destination) if same_domain else nic_address(destination)


def ends(source: Gpu, destination: Gpu) -> tuple[IPv4Address, IPv4Address]:
    """The addresses of packets to a destination: of the source, by the same lane, and its own."""
    return address_of(source.by(destination.lane), destination), address_of(destination, source)


def hb_mac(gpu: Gpu) -> str:
    """The hardware address of `hb0`."""
    return _mac("02:01", int(hb_address(gpu)))


def nic_mac(gpu: Gpu) -> str:
    """The hardware address of the NIC port of this lane."""
    return _mac("02:02", int(nic_address(gpu)))


def _mac(prefix: str, number: int) -> str:
    return prefix + "".join(f":{byte:02x}" for byte in number.to_bytes(4, "big"))
