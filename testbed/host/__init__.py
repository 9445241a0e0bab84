"""Checks the requirements of a run; removes leftovers of dead runs."""
