"""Results: statistics, comparison with the model, the store of runs, tables."""
