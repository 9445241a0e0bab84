"""Memoized pure functions: a result is recomputed only if its inputs have changed."""

from collections.abc import Callable
from typing import Generic, TypeVar

Place = TypeVar("Place")
Inputs = TypeVar("Inputs")
Result = TypeVar("Result")


class LastResultCache(Generic[Place, Inputs, Result]):
    """A pure function of a place and inputs, which keeps the last result for each place.

    Equal inputs return the same object, so comparing results is fast, too.
    """

    def __init__(self, function: Callable[[Place, Inputs], Result]) -> None:
        self._function = function
        self._last: dict[Place, tuple[Inputs, Result]] = {}

    def __call__(self, place: Place, inputs: Inputs) -> Result:
        """Return the result, from the cache if the inputs are unchanged."""
        last = self._last.get(place)
        if last is None or last[0] != inputs:
            last = self._last[place] = inputs, self._function(place, inputs)
        return last[1]
