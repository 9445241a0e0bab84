"""Whether a result can be trusted."""

from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """Whether a result can be trusted, worst last."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


# A verdict and the sentence that says why.
Reason = tuple[Verdict, str]


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of several verdicts; pass if there are none."""
    return max(verdicts, key=list(Verdict).index, default=Verdict.PASS)
