"""How long a schedule takes, and what it asks of the machine."""
