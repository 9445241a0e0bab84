"""Cases with faults: their phases, their timeline, the controller's convergence."""
