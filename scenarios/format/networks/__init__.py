"""Networks in the files of other tools, as keys of a scenario's fabric."""
