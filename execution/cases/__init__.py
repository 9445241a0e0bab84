"""A fabric that is up, and the executions of a case on it."""
