"""The tables of what is computed on paper."""
