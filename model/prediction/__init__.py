"""Predictions of a schedule's completion time and of its load on the machine."""
