"""Schedules of transfers, their symbolic proof, and sizes of real training jobs."""
