"""Tables of modeled results."""
