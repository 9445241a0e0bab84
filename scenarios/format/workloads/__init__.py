"""Entries of a scenario's workloads: each kind's keys, its task on a fabric, and its checks."""
