"""Probes at 1 kHz, and probes that show their path."""
