"""Sections rendered: for a terminal, as an HTML page, as Markdown."""
