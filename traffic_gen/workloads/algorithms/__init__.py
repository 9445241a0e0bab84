"""Algorithms of collectives: transfers and their dependencies."""
