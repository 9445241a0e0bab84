"""A run, its cases and its faults."""
