"""Price and power of a network: those of its ports and transceivers."""

from dataclasses import dataclass

from model.fabric.network_cost.clos import Equipment


@dataclass(frozen=True)
class Prices:
    """Prices in USD and powers in watts, of a switch per port and of a transceiver."""

    port_usd: float
    transceiver_usd: float
    port_watts: float
    transceiver_watts: float

    def usd(self, of: Equipment) -> float:
        """The price of equipment; a switch costs as much as all its ports."""
        return of.ports * self.port_usd + of.transceivers * self.transceiver_usd

    def watts(self, of: Equipment) -> float:
        """The power of equipment; a switch draws as much as all its ports."""
        return of.ports * self.port_watts + of.transceivers * self.transceiver_watts
