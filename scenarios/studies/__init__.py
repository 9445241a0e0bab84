"""Studies: the paper's claims, its emulated twins, and an architect's decision."""
