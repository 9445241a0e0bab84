"""The file format: keys, units, what is wrong with a file and how to say it."""
