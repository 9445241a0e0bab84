"""The folders of runs and sweeps."""
