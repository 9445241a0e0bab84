"""A section of results: a title, a table, remarks. Text is made here, and rendered elsewhere."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from model.sentences import counted
from results.verdicts.verdict import is_timed

Result = Mapping[str, Any]


@dataclass(frozen=True)
class Marked:
    """Words in the colour of a verdict, or in none. A column of them is at the left."""

    text: str
    verdict: str = ""

    def __str__(self) -> str:
        return self.text


Cell = str | Marked
Row = Sequence[Cell]
Columns = Sequence[tuple[str, Callable[[Result], Cell]]]
"""Headings, each with the cell of a case."""
Units = Sequence[tuple[float, str]]
"""Sizes and names of units, the largest first."""
BYTES: Units = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B"))
SECONDS: Units = ((1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


@dataclass(frozen=True)
class Section:
    """A table below its title, `text` on how to read it, and remarks about what it shows.

    The first `names` columns are words, the others figures. A row of one cell is the heading of the
    rows below it.
    """

    title: str
    columns: Sequence[str] = ()
    rows: Sequence[Row] = ()
    text: str = ""
    remarks: Sequence[Cell] = ()
    names: int = 1

    @property
    def has_content(self) -> bool:
        """Whether it says anything."""
        return bool(self.rows or self.remarks)


def verdict(of: Result) -> Marked:
    """The verdict of a case, or of anything else that has one."""
    return Marked(of["verdict"], of["verdict"])


def case_section(
    title: str,
    columns: Columns,
    cases: Iterable[Result],
    text: str = "",
    remarks: Iterable[Cell] = (),
) -> Section:
    """A row for each case, grouped by the kind of its fabric, with which its name begins."""
    rows = grouped(
        cases,
        lambda case: str(case["case"]).partition("/")[0],
        lambda case: (without_fabric(case["case"]), *(cell(case) for _, cell in columns)),
    )
    return Section(title, ("case", *(name for name, _ in columns)), rows, text, tuple(remarks))


def grouped(
    items: Iterable[Result], heading: Callable[[Result], str], row: Callable[[Result], Row]
) -> list[Row]:
    """A row for each item, those that follow each other below their common heading."""
    rows = list[Row]()
    for name, together in groupby(items, heading):
        rows += ((name,), *map(row, together))
    return rows


def requests_section(
    cases: Iterable[Result],
    columns: Sequence[str],
    cells: Callable[[Result, Any], Iterable[Cell]],
    text: str = "",
) -> Section:
    """The latencies of request loads; `cells` formats one of a case."""
    rows = list[Row]()
    for case in cases:
        load = case["inference"]
        offered = f"{load['offered_load']:.0%} of the NICs' rate"
        rows.append((f"{case['case']}: {counted(load['count'], 'request')}, {offered}",))
        rows += ((name, *cells(case, of)) for name, of in load["latency_s"].items())
    title = "Requests, from arrival to the last byte of their KV cache"
    return Section(title, ("of requests' latencies", *columns), rows, text)


def without_fabric(case: str) -> str:
    """Return the name of a case without the kind of its fabric, with which it begins."""
    return case.partition("/")[2]


def told(name: str, judged: Result) -> Iterator[Marked]:
    """Yield the reasons of a verdict, which begin with their own, and notes, which only inform."""
    for reason in judged["reasons"]:
        level = "warn" if reason in judged.get("doubts", ()) else judged["verdict"]
        yield Marked(f"{level}: {name}: {reason}", level)
    yield from (Marked(f"note: {name}: {note}") for note in judged.get("notes", ()))


def number_or_dash(value: float | None, form: str, unit: str = "") -> str:
    """Format a number with its unit, or a dash if there is none."""
    return "-" if value is None else f"{value:{form}}{unit}"


def if_whole(cell: Callable[[Result], str]) -> Callable[[Result], str]:
    """A cell of the executions that count; a dash if all broke off."""
    return lambda judged: "-" if judged.get("incomplete") else cell(judged)


def if_timed(cell: Callable[[Result], str]) -> Callable[[Result], str]:
    """A cell of a time held against others; a dash for a case whose times mean nothing."""
    return lambda case: cell(case) if is_timed(case) else "-"


def range_of(values: Collection[float], shown: Callable[[float], str] = "{:.3f}".format) -> str:
    """Format the least and the largest of some values, or one if they look the same."""
    return " to ".join(dict.fromkeys((shown(min(values)), shown(max(values)))))


def spread(measured_s: Mapping[str, Any]) -> str:
    """Format the range of several times over their median, if that is not 0, or a dash."""
    values, median_s = measured_s["values"], measured_s["median"]
    return f"{(max(values) - min(values)) / median_s:.1%}" if median_s and values[1:] else "-"


def slower_in_words(slower: float) -> str:
    """Return a slowdown in words; one that rounds to 0.0% has no sign."""
    percent = f"{100 * abs(slower):.1f}"
    pace = "slower" if slower > 0 else "faster"
    return "as fast" if percent == "0.0" else f"{percent}% {pace}"


def slowdown_in_words(slowdown: Result) -> str:
    """Say how much slower rail-only is in a case, measured and modeled."""
    case, baseline = without_fabric(slowdown["case"]), without_fabric(slowdown["baseline"])
    against = "" if case == baseline else f", against {baseline.split('/')[1]}"
    measured, modeled = (slower_in_words(slowdown[of]) for of in ("measured", "modeled"))
    return f"{case}{against}: {measured} (modeled: {modeled})"


def grain_shown(grain_bytes: int, grains: float, size_scale: float) -> tuple[str, str, str]:
    """Format a grain, emulated and as the platform's data, and its part of a transfer."""
    part = f"1/{max(1.0, grains):.0f}"
    return human_bytes(grain_bytes), human_bytes(grain_bytes * size_scale), part


def human_bytes(size: float) -> str:
    """Format a size in bytes, with three significant digits."""
    return _in_units(size, BYTES)


def human_seconds(seconds: float | None) -> str:
    """Format seconds in a suitable unit (s, ms, us or ns), or a dash if there are none."""
    return "-" if seconds is None else _in_units(seconds, SECONDS)


def _in_units(value: float, units: Units) -> str:
    """Format a value in the first unit of which it has one or more when rounded."""
    rounded = [(float(f"{value / size:.3g}"), unit) for size, unit in units]
    number, unit = next((one for one in rounded if one[0] >= 1), rounded[-1])
    # Without the exponent that three digits alone have from a thousand on.
    return f"{number:g} {unit}"
