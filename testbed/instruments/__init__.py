"""Instruments on a running fabric: links, CPU, pauses, flow counters, memory, captures."""
