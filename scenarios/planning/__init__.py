"""Check whether a scenario fits this machine, and choose its scales."""
