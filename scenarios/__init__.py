"""The experiments and the program that runs them: scenarios, plans, runs, sweeps, commands."""
