"""Stored runs as files of other tools."""
