"""Workloads of a scenario as schedules, within the bounds of their generators."""
