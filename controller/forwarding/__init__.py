"""The desired rules and host routes of any health, and the difference to what is installed."""
