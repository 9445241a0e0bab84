"""Whether a result can be trusted."""

from collections.abc import Iterable, Iterator, Mapping
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
    """Limits of a figure: above `warn` it is doubtful, above `fail` it is not credible."""

    warn: float
    fail: float

    def verdict(self, value: float) -> Verdict:
        """Return the verdict on a value."""
        if value > self.fail:
            return Verdict.FAIL
        return Verdict.WARN if value > self.warn else Verdict.PASS


def times_count(data_is_right: bool | None) -> bool:
    """Whether times are held against a model and each other; checking the data takes time."""
    return data_is_right is None


def is_timed(judged: Mapping[str, Any]) -> bool:
    """Whether the times of a case or failure, from its JSON object, are held against others.

    They are not if its data was checked, or no execution was complete.
    """
    return times_count(judged["data_is_right"]) and not judged.get("incomplete")


# A verdict and the sentence that says why.
Reason = tuple[Verdict, str]


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of several verdicts; pass if there are none."""
    return max(verdicts, key=list(Verdict).index, default=Verdict.PASS)


@dataclass(frozen=True)
class Judgement:
    """A verdict, the sentences that say why, and notes, which only inform.

    `doubts` are, of a verdict that fails, those of the sentences that alone would only warn.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    notes: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    doubts: tuple[str, ...] = field(default=(), metadata=OPTIONAL)

    @classmethod
    def of(cls, reasons: Iterable[Reason], **more: Any) -> Self:
        """Return the worst verdict of several reasons; sentences that let a case pass are notes."""
        known = list(reasons)
        why = tuple(sentence for verdict, sentence in known if verdict is not Verdict.PASS)
        notes = tuple(sentence for verdict, sentence in known if verdict is Verdict.PASS)
        failing = {sentence for verdict, sentence in known if verdict is Verdict.FAIL}
        doubts = tuple(one for one in why if one not in failing) if failing else ()
        return cls(worst(verdict for verdict, _ in known), why, notes, doubts, **more)


def with_verdict(judged: Any, prefix: str = "") -> Iterator[Reason]:
    """Yield the reasons of a judgement, with their own verdicts, and its notes, after a prefix."""
    for sentence in judged.reasons:
        yield Verdict.WARN if sentence in judged.doubts else judged.verdict, prefix + sentence
    yield from ((Verdict.PASS, prefix + sentence) for sentence in judged.notes)
