"""Benchmarks without a fabric: routing, schedules, imported traces, the model of training."""
