"""The sections of two runs side by side, from the JSON object of their comparison."""

from collections.abc import Iterator

from results.sections.formats import number_or_dash
from results.sections.section import Case, Columns, Marked, Result, Section, case_section
from results.verdicts.run_diff import Difference

NAMES = ("A", "B")


def comparison_sections(result: Result) -> list[Section]:
    """Both runs, their common cases with the reasons of verdicts, other differences if any."""
    runs = [
        Marked(f"{name}: {run['run_id']} {run['verdict']}", run["verdict"])
        for name, run in zip(NAMES, result["runs"], strict=True)
    ]
    cases = case_section(
        "Both runs, case by case",
        COMPARED,
        result["cases"],
        "Medians, in emulated seconds. Slower, faster: the ranges of the executions do not "
        "overlap; same: they do; few repeats: disjoint, but too few repeats to tell; other work: "
        "not compared. The spread of a run's repeats does not show the differences between two "
        "set-ups.",
        _reasons(result["cases"]),
    )
    warnings = [Marked(f"warning: {line}", "warn") for line in _differences(result)]
    others = Section("Differences apart from the measurements", remarks=warnings)
    return [Section("Runs", remarks=runs), cases, *([others] if warnings else [])]


COMPARED: Columns = (
    *(
        (name, lambda case, of=of: number_or_dash(case["measured_s"][of]["median"], ".3f", " s"))
        for of, name in enumerate(NAMES)
    ),
    ("B is", lambda case: Marked(in_words(case))),
    ("B/A", lambda case: number_or_dash(case["ratio"], ".4f")),
    *(
        (f"{name}/model", lambda case, of=of: number_or_dash(case["ratio_to_model"][of], ".4f"))
        for of, name in enumerate(NAMES)
    ),
    *(
        (name, lambda case, of=of: Marked(case["verdicts"][of], case["verdicts"][of]))
        for of, name in enumerate(NAMES)
    ),
)


def in_words(case: Result) -> str:
    """Say whether the second run differs by more than the spread."""
    match Difference(case["difference"]):
        case Difference.WITHIN:
            return "same"
        case Difference.UNKNOWN:
            return "few repeats"
        case Difference.OTHER_WORK:
            return "other work"
        case Difference.LARGER:
            return "slower" if case["ratio"] > 1 else "faster"


def _differences(result: Result) -> Iterator[str]:
    yield from result["warnings"]
    for case in result["cases"]:
        if case["other_work"]:
            differences = "; ".join(case["other_work"])
            yield f"{case['case']} is not the same work, and is not compared: {differences}"
    for name, key in zip(NAMES, ("only_in_first", "only_in_second"), strict=True):
        yield from (f"{case} is in {name} only" for case in result[key])


def _reasons(cases: list[Case]) -> Iterator[Marked]:
    """Yield a line for every reason, with its verdict."""
    for case in cases:
        for name, verdict, why in zip(NAMES, case["verdicts"], case["reasons"], strict=True):
            for reason in why:
                yield Marked(f"{verdict}: {name}: {case['case']}: {reason}", verdict)
