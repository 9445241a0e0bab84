"""Sweeps: axes, points, and their execution."""
