"""The fabric: specification, topology, addresses, link rates, health, cost."""
