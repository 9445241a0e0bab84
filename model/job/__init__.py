"""Placement of a job's ranks on GPUs, before and after a fault."""
