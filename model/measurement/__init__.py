"""Measurements as values: transfers, pauses, links, CPU samples."""
