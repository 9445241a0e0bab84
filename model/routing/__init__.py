"""Paths of all packets in a fabric of any health, for both controller and prediction."""
