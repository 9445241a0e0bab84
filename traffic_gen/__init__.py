"""Workloads and traces as steps, the generators that execute them, and the probes."""
