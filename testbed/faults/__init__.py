"""Breaking and repairing a running fabric."""
