"""Does it fit on this machine, and with which scales."""
