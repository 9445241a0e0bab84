"""The same fabric as a user of plain Mininet writes it."""
