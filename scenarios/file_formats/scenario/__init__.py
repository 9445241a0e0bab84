"""The scenario file's format: keys, units, checks and error messages."""
