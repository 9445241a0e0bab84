"""What a fabric is: its specification, topology, addresses, link rates, health."""
