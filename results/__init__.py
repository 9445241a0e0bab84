"""Results: verdicts, the store of runs, JSON objects, tables, figures, reports."""
