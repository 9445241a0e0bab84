"""The decision of an architect: which network for a cluster and the models that it will train."""
