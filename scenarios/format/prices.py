"""Prices and powers of network equipment, with their sources."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Annotated

from pydantic import Field

from model.fabric.network_cost import Prices
from scenarios.format.checked_file import Strict, checked
from scenarios.format.document import FileKind, read
from scenarios.format.units import Text

DEFAULT = Path(__file__).parent / "prices.yaml"
PRICES = FileKind("price list", f"{DEFAULT} is an example", "docs/guides/training.md")


class Quote(Strict):
    """A price or power, and where it is from."""

    value: float = Field(ge=0, le=1e9, strict=True)
    source: Text
    date: Annotated[date, Field(strict=True)] | Text


def zeros(prices: Prices) -> Iterator[str]:
    """Yield a sentence for prices, and for powers, that are all 0: no network saves any."""
    for unit, things in (("usd", "prices"), ("watts", "powers")):
        if not any(value for key, value in vars(prices).items() if key.endswith(unit)):
            yield f"all {things} are 0, so that no network differs in them"


class PriceFile(Strict):
    """A file of prices in USD and powers in watts."""

    port_usd: Quote
    transceiver_usd: Quote
    port_watts: Quote
    transceiver_watts: Quote

    @property
    def prices(self) -> Prices:
        """The values alone."""
        return Prices(**{key: quote.value for key, quote in self})


def load_prices(path: Path = DEFAULT) -> PriceFile:
    """Read a file of prices; raises `InputError` with all problems."""
    return checked(read(path, PRICES), PriceFile)
