"""The report of runs, one HTML file with its pictures inside, and the timeline of a run.

Importing matplotlib takes a second: commands import this package only when they write a report.
"""

import results.figures  # noqa: F401  (sets matplotlib's level of messages)
