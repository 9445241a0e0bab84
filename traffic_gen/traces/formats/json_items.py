"""Values of a JSON text that know their place in it, for messages."""

import json
from collections import Counter
from collections.abc import Container
from typing import Any, NoReturn

from traffic_gen.traces.formats.nodes import Malformed

# Objects take several times the memory of their text.
MOST_JSON_BYTES = 2**26


class Item:
    """A value, and its place: the keys and the numbers that lead to it."""

    def __init__(self, value: Any, place: str = "") -> None:
        self.value, self.place = value, place

    def refuse(self, what: str, hint: str = "") -> NoReturn:
        """Raise `Malformed` at this place."""
        raise Malformed(f": {self.place}" if self.place else ":1", what, hint)

    def has(self, key: str) -> bool:
        """Whether this is an object with a key."""
        return isinstance(self.value, dict) and key in self.value

    def of(self, key: str) -> "Item":
        """Return the value of a key."""
        if not self.has(key):
            self.refuse(f"needs the key {key!r}")
        return Item(self.value[key], f"{self.place}.{key}".removeprefix("."))

    def each(self, key: str) -> list["Item"]:
        """Return the values of a list, which is empty without the key."""
        if not isinstance(self.value, dict):
            self.refuse(f"must be an object, got {type(self.value).__name__}")
        listed = self.value.get(key, [])
        if not isinstance(listed, list):
            self.refuse(f"{key} must be a list, got {type(listed).__name__}")
        place = f"{self.place}.{key}".removeprefix(".")
        return [Item(value, f"{place}[{number}]") for number, value in enumerate(listed)]

    def number(self, key: str, least: int, most: int, default: int | None = None) -> int:
        """Return an integer within bounds."""
        if default is not None and not self.has(key):
            return default
        return self.of(key).integer(least, most)

    def numbers(self, key: str, most: int) -> list[int]:
        """Return a list of integers from 0 on."""
        return [one.integer(0, most) for one in self.each(key)]

    def integer(self, least: int, most: int) -> int:
        """Return this value, an integer within bounds."""
        value = whole(self.value)
        if type(value) is not int or not least <= value <= most:
            bounds = f"{least} to {most}" if least <= most else "one of none"
            self.refuse(f"must be {bounds}, got {str(value)[:40]!r}")
        return value

    def truth(self, key: str) -> bool:
        """Return a truth value, false without the key."""
        value = self.of(key).value if self.has(key) else False
        if not isinstance(value, bool):
            self.refuse(f"{key} must be true or false, got {str(value)[:40]!r}")
        return value

    def text(self, key: str, known: Container[str] | None = None) -> str:
        """Return a text, which is one of those that are known."""
        value = self.of(key).value
        if not isinstance(value, str) or (known is not None and value not in known):
            self.refuse(f"unknown {key} {str(value)[:40]!r}")
        return value


def whole(value: object) -> object:
    """Return a whole number as an integer, which a writer may have made a float."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def parsed(text: str) -> Item:
    """Return the value of a whole text; raise `Malformed` for any other text."""
    value, *others = values_in(text)
    if others:
        raise Malformed(1, "is not JSON: more values after the first one")
    return Item(value)


def values_in(text: str) -> list[Any]:
    """Return the values of a text, one or more; raise `Malformed` for any other text."""
    if len(text) > MOST_JSON_BYTES:
        raise Malformed(1, f"JSON must have at most {MOST_JSON_BYTES} bytes")
    decoder, values = json.JSONDecoder(object_pairs_hook=_distinct), list[Any]()
    text, offset = text.rstrip(), 0
    try:
        while offset < len(text) or not values:
            while text[offset : offset + 1].isspace():
                offset += 1
            value, offset = decoder.raw_decode(text, offset)
            values.append(value)
        return values
    except json.JSONDecodeError as error:
        raise Malformed(error.lineno, f"is not JSON: {error.msg}") from None
    except (ValueError, RecursionError):
        raise Malformed(1, "is not JSON: a number is too long, or values are too deep") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object, whose keys are all different (RFC 8259, section 4)."""
    found = dict(pairs)
    if len(found) < len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise Malformed(1, f"duplicate key {twice[:40]!r} in an object")
    return found
