"""Which links work and how fast: carrier, link probes, rates."""
