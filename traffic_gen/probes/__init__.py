"""Probes at 1 kHz that measure blackouts, and probes that trace paths."""
