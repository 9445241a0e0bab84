"""Checks what a run needs from the machine; removes leftovers of dead runs."""
