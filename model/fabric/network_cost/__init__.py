"""Switches, transceivers, price and power of the networks between HB domains."""
