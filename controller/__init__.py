"""The controller: the state that the fabric should be in, and how it gets there."""
