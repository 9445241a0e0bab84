"""Schedules of transfers, their symbolic verification, and sizes of real training jobs."""
