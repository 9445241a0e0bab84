"""Collectives, point-to-point transfers, iterations, request loads and several jobs as steps."""
