"""Suggestions for misspelt names."""

import difflib
from collections.abc import Iterable


def nearest(found: str, known: Iterable[str]) -> str:
    """Return `; did you mean ...?`, or only the semicolon if no known name is similar."""
    matches = difflib.get_close_matches(found, list(known), n=1)
    return f"; did you mean {matches[0]!r}?" if matches else ";"
