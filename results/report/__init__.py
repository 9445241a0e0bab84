"""Reports and timelines of runs. Importing matplotlib takes a second: only for a report."""
