"""Measures a running fabric: single links, CPU, pauses, flow counters, memory."""
