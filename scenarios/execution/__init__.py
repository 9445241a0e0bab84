"""A run, its cases and its faults; a fabric that serves its user; the virtual clock."""
