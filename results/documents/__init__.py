"""The JSON objects of results."""
