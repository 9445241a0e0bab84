"""Parse `--over KEY=V1,V2,...`: the values that a key takes in a sweep."""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod

from model.errors import InputError, Problem
from model.sweep import Setting
from scenarios.format.bounded_text import UNREADABLE, not_yaml, parser, value_of

# 60 short points take an hour: more points than this are a typing error, and take days.
MAX_POINTS = 1000

Axis = tuple[Setting, ...]


def axes(over: Sequence[str], overrides: Sequence[str]) -> tuple[Axis, ...]:
    """The settings of every key; raises `InputError` with all problems."""
    if not over:
        what = "needs at least one key with its values"
        raise InputError(Problem("--over", what, "such as --over fabric.domains=2,4,8"))
    found: list[Axis] = []
    problems: list[Problem] = []
    for option in over:
        try:
            found.append(axis(option))
        except ValueError as error:
            problems.append(Problem(f"--over {option}", str(error)))
    problems += [*_repeated_keys(found, overrides), *_too_many(found)]
    if problems:
        raise InputError(*problems)
    return tuple(found)


def axis(option: str) -> Axis:
    """The settings that one `--over` lists; raises `ValueError` with a message.

    The list is a YAML list without its brackets, so a value can be anything that `--set` takes.
    """
    key, equals, listed = option.partition("=")
    if not equals or not key:
        raise ValueError("must be key=value,value,... such as fabric.domains=2,4,8")
    texts = _texts(listed)
    if not texts:
        raise ValueError("has no values: write them behind the =, with commas between them")
    for text, count in Counter(texts).items():
        if count > 1:
            raise ValueError(f"has the value {text!r} {count} times: each makes points of its own")
    return tuple(Setting(key, text, value_of(text)) for text in texts)


def _texts(listed: str) -> list[str]:
    """Split a list into its values, as written; raises `ValueError` if it is not YAML."""
    text = f"[{listed}\n]"
    try:
        node = parser("safe").compose(text)
    except UNREADABLE as error:
        hint = "quote a value that has a comma or a bracket in it"
        raise ValueError(f"{not_yaml('the list of values', error)} ({hint})") from None
    return [text[value.start_mark.index : value.end_mark.index] for value in node.value]


def _repeated_keys(found: Sequence[Axis], overrides: Sequence[str]) -> Iterator[Problem]:
    keys = Counter(settings[0].key for settings in found)
    for key, count in keys.items():
        if count > 1:
            yield Problem(f"--over {key}", f"is there {count} times", "each key once")
    for override in overrides:
        key = override.partition("=")[0]
        if key in keys:
            yield Problem(f"--set {key}", "the key has its values from --over", "leave one out")


def _too_many(found: Sequence[Axis]) -> Iterator[Problem]:
    points = prod(map(len, found))
    if points > MAX_POINTS:
        shape = " x ".join(str(len(settings)) for settings in found)
        hint = "sweep fewer values, or one part after the other"
        yield Problem("--over", f"{shape} values are {points} points, more than {MAX_POINTS}", hint)
