"""Breaking and mending a running fabric."""
