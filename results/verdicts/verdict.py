"""Whether a result can be trusted."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from results.store.records import OPTIONAL


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
    """A verdict, the sentences that say why, and notes: those that did not decide it."""

    verdict: Verdict
    reasons: tuple[str, ...]
    notes: tuple[str, ...] = field(default=(), metadata=OPTIONAL)

    @classmethod
    def of(cls, reasons: Iterable[Reason], **more: Any) -> Self:
        """Return the worst verdict of several reasons; other sentences than its own are notes."""
        known = list(reasons)
        verdict = worst(one for one, _ in known)
        deciding = () if verdict is Verdict.PASS else (verdict,)
        why = tuple(sentence for one, sentence in known if one in deciding)
        notes = tuple(sentence for one, sentence in known if one not in deciding)
        return cls(verdict, why, notes, **more)


def with_verdict(judged: Any, prefix: str = "") -> Iterator[Reason]:
    """Yield the reasons of a judgement, with its verdict, and its notes, behind a prefix."""
    yield from ((judged.verdict, prefix + sentence) for sentence in judged.reasons)
    yield from ((Verdict.PASS, prefix + sentence) for sentence in judged.notes)
