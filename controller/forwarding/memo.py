"""Pure functions that remember: what has not changed is not worked out again."""

from collections.abc import Callable
from typing import Generic, TypeVar

Place = TypeVar("Place")
Inputs = TypeVar("Inputs")
Result = TypeVar("Result")


class Memory(Generic[Place, Inputs, Result]):
    """A pure function of a place and its inputs, with the last answer for each place.

    For equal inputs the answer is the same object: who compares answers is done at once, too.
    """

    def __init__(self, function: Callable[[Place, Inputs], Result]) -> None:
        self._function = function
        self._last: dict[Place, tuple[Inputs, Result]] = {}

    def __call__(self, place: Place, inputs: Inputs) -> Result:
        """The function's answer."""
        last = self._last.get(place)
        if last is None or last[0] != inputs:
            last = self._last[place] = inputs, self._function(place, inputs)
        return last[1]
