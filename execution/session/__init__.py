"""A fabric that is up and waits for its user's commands."""
