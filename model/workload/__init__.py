"""Transfers with dependencies, the proof that they are right, sizes of real training jobs."""
