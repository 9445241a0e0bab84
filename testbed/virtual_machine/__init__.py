"""Debian's own kernel, to try things on."""
