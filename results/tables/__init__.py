"""The tables at a terminal, from the JSON objects."""
