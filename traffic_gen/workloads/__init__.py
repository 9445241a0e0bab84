"""Collectives and point-to-point transfers as schedules."""
