"""Schedules with their symbolic proof, traces, request loads, generators, and training sizes."""
