"""A noisy machine, to try things on."""
