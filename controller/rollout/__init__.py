"""The order in which rules change, so that no packet is lost."""
