"""The commands that the documentation shows, and what executes each of them."""
