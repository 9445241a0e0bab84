"""The machine of a run: its costs, its facts, other runs on it."""
