"""From a file to a scenario."""
