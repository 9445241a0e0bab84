"""The command line: one module a command, named for it."""
