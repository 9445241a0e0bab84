"""Whether a result can be trusted."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self


class Verdict(StrEnum):
    """Whether a result can be trusted, worst last."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Thresholds:
    """Distance of measured / modeled from 1: above `within`, warn; above `limit`, fail."""

    within: float
    limit: float


# A verdict and the sentence that says why.
Reason = tuple[Verdict, str]


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of several verdicts; pass if there are none."""
    return max(verdicts, key=list(Verdict).index, default=Verdict.PASS)


@dataclass(frozen=True)
class Judgement:
    """A verdict, and the sentences that say why."""

    verdict: Verdict
    reasons: tuple[str, ...]

    @classmethod
    def of(cls, reasons: Iterable[Reason], **more: Any) -> Self:
        """Return the worst verdict of several reasons, and all their sentences."""
        known = list(reasons)
        sentences = tuple(sentence for _, sentence in known)
        return cls(worst(verdict for verdict, _ in known), sentences, **more)


def with_verdict(judged: Any, prefix: str = "") -> Iterator[Reason]:
    """Yield the sentences of a judgement, behind a prefix, each with the whole verdict."""
    yield from ((judged.verdict, prefix + sentence) for sentence in judged.reasons)
