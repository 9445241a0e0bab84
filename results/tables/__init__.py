"""The tables for the terminal, from the JSON objects."""
