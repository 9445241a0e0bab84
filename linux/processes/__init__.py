"""Processes: their ends, their locks, their signals, their threads."""
