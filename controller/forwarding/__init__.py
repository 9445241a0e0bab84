"""Desired rules and host routes for any health, and their difference to the installed ones."""
