"""Workloads as schedules, and the agent that executes a schedule inside a GPU proxy."""
