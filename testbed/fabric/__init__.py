"""Links with their shapers, delay and loss; the Mininet network and its command line."""
