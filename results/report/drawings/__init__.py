"""The drawings of a report."""
