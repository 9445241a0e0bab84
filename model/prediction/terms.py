"""Terms of the model: a transfer's cost on the wire, and the bursts that a shaper lets through.

Each follows from a protocol, from the kernel's source or from a setting of the testbed; none is
fitted. A prediction without one of them shows what that term is worth.
"""

from dataclasses import dataclass, replace

import numpy as np

from model.arrays import Floats, Ints
from model.fabric.shaping import PACKET_HEADER_BYTES, SEGMENT_BYTES, wire_bytes
from model.prediction.network import Network
from model.workload.generator import TRANSFER_HEADER_BYTES


@dataclass(frozen=True)
class Terms:
    """Terms of the model that a prediction includes; all by default."""

    headers: bool = True
    bursts: bool = True
    last_segment: bool = True
    acknowledgements: bool = True
    probes: bool = True

    def size(self, payload_bytes: Ints) -> Floats:
        """Return the bytes that a shaped link counts for each transfer, headers included."""
        if not self.headers:
            return payload_bytes.astype(np.float64)
        return np.float64(wire_bytes(1)) * (payload_bytes + TRANSFER_HEADER_BYTES)

    def last(self, payload_bytes: Ints) -> Floats:
        """Return the bytes of each transfer's last segment, which may leave on credit.

        HTB sends a whole segment while its bucket is not in debt, and charges it afterwards
        (htb_class_mode and htb_accnt_ctokens in net/sched/sch_htb.c).
        """
        if not self.last_segment:
            return np.zeros(len(payload_bytes))
        before = payload_bytes + TRANSFER_HEADER_BYTES - 1
        return np.float64(wire_bytes(1)) * (before % SEGMENT_BYTES + 1)

    def applied(self, net: Network) -> Network:
        """Return the network with the rates and bursts that are left for data.

        The controller's probes and acknowledgements go first. Each direction of a link is taken to
        carry acknowledgements for as many bytes as it has data itself. A segment of two packets or
        more is acknowledged at once (__tcp_ack_snd_check in net/ipv4/tcp_input.c), and it arrives
        whole. A full bucket passes at once after idleness (tc-htb(8), cburst).
        """
        rate, burst = net.rate, net.burst
        if self.probes:
            rate = np.maximum(0.0, rate - net.probes)
        if self.acknowledgements:
            rate = rate / (1 + PACKET_HEADER_BYTES / wire_bytes(SEGMENT_BYTES))
        return replace(net, rate=rate, burst=burst if self.bursts else np.zeros(net.links))


ALL = Terms()
