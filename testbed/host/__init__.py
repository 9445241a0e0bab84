"""What the machine must have, and what dead runs left on it."""
