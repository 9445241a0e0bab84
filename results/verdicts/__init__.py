"""Judging: against the model, by observation, bytes, paths, faults."""
