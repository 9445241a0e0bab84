"""How close measurements are to the model, and whether verdicts are right."""
