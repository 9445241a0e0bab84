"""YAML files with checked keys: read within bounds, refused in plain words."""
