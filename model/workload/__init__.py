"""Schedules, request loads, traces, generators."""
