"""Studies: the paper's claims, its emulated twins, an architect's decision, benchmarks."""
