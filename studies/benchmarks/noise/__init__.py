"""Artificial noise on a machine, for benchmarks and tests."""
