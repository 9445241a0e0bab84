"""Ranks, communicators, partitions and placement of jobs, before and after a fault."""
