"""Verdicts: comparison with the model, fidelity, byte conservation, paths, faults."""
