"""Which GPU each rank has, and where a job goes on after a fault."""
