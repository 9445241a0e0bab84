"""Issues of a scenario whose keys and types are valid, and hints for misspelt names."""

import difflib
import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date

# Prefix of a model's key in the place of an error, where an entry may be of several models.
TAGGED = "with "

# The keys that lead to a value in a scenario file, and numbers of list entries.
Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Issue:
    """An invalid value, or values that do not fit together."""

    place: Place
    what: str
    hint: str = ""


class Refused(ValueError):
    """A value that a validator refuses, with a hint; a validator of a mapping names the key."""

    def __init__(self, what: str, hint: str = "", key: str = "") -> None:
        super().__init__(what)
        self.hint, self.key = hint, key


def written(value: object) -> str:
    """Return a value for a message: dates, and words of YAML that are no text, as in a file."""
    if isinstance(value, date):
        return str(value)
    return json.dumps(value) if value is None or isinstance(value, bool) else repr(value)


# Of more known names, comparing each with a wrong one takes too long.
MOST_COMPARED = 200


def meant(written: str, known: Collection[str], otherwise: str = "") -> str:
    """Return `did you mean ...?`, or another hint if no known name is similar.

    A name of which it is a word, as `h200` of `dgx-h200`, comes before one with similar letters.
    """
    compared = known if len(known) <= MOST_COMPARED else ()
    matches = [name for name in compared if written in name.split("-")]
    matches = matches or difflib.get_close_matches(written, compared, n=1)
    return f"did you mean {matches[0]!r}?" if matches else otherwise


def did_you_mean(written: str, known: Collection[str]) -> str:
    """Return `; did you mean ...?`, or only the semicolon if no known name is similar."""
    return f"; {meant(written, known)}".rstrip()
