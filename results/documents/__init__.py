"""The JSON objects."""
