"""What executes a scenario: runs, faults, sessions, the live view, sweeps, the virtual clock."""
