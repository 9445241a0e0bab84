"""Rare errors in scenario files: one sentence for each, and no traceback."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model.errors import InputError
from scenarios.format.units import PUBLISHED_SIZES
from scenarios.load import load

GOOD = """\
fabric:
  domains: 4
  domain_size: 2
  platform: dgx-h100
  bandwidth_scale: 20000
workloads:
  - collective: all-reduce
    algorithm: ring
    size: 12 MB
    size_scale: 2
"""


def problems(file: Path, text: str, *overrides: str) -> list[str]:
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        load(file, overrides)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "seed: 2001-99-99\n" + GOOD,
            "x.yaml: is not YAML: month must be in 1..12",
        ),
        (
            "check_data: !!bool x\n" + GOOD,
            "x.yaml: is not YAML: a value does not fit its tag or is out of range",
        ),
        (
            f"seed: {'9' * 5000}\n" + GOOD,
            "x.yaml:1: is out of bounds: a number must have at most 100 characters, got 5000",
        ),
        ("[" * 5000, "x.yaml:1: is out of bounds: it is nested more than 20 deep"),
        (
            "---\n" + GOOD + "---\n",
            "x.yaml:12: is not YAML: expected a single document in the stream, "
            "but found another document",
        ),
        *(
            (GOOD + line, f"x.yaml:11: is not YAML: {what}")
            for what, lines in (
                (
                    "must be indented like the line above, and be a key or an entry like it",
                    (" seed: 2\n", "- 2\n"),
                ),
                ("expected ',' or ']', but got the end of the text", ("seed: [2",)),
            )
            for line in lines
        ),
        (
            "%YAML 1.3\n---\n" + GOOD,
            "x.yaml: is not YAML of a known version; write `%YAML 1.2`, or no version",
        ),
        (GOOD + "# \0", "x.yaml:11: is not YAML: the character U+0000 is not allowed"),
    ],
)
def test_what_yaml_cannot_say(file: Path, text: str, message: str) -> None:
    assert problems(file, text) == [message]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("size_scale: 2", "size_scale: 0.5"),
            "x.yaml:10 workloads.0.size_scale: must be at least 1, got 0.5",
        ),
        (
            ("bandwidth_scale: 20000", "bandwidth_scale: 0"),
            "x.yaml:5 fabric.bandwidth_scale: must be at least 1e-06, got 0",
        ),
        (
            ("bandwidth_scale: 20000", "bandwidth_scale: true"),
            "x.yaml:5 fabric.bandwidth_scale: must be a number or 'auto', got true",
        ),
        (
            ("platform: dgx-h100", "hb_rate: 360\n  nic_rate: 40 Gbit/s"),
            "x.yaml:4 fabric.hb_rate: needs a unit (bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s), "
            "got '360'",
        ),
        (
            ("12 MB", "4096"),
            "x.yaml:9 workloads.0.size: needs a unit (B, kB, MB, GB, KiB, MiB, GiB), got '4096'; "
            f"or a published size: {', '.join(PUBLISHED_SIZES)}",
        ),
        (
            ("12 MB", "1e400 MB"),
            "x.yaml:9 workloads.0.size: must be 1 B to 1000000 GB, got '1e400 MB'; "
            "or a published size: " + ", ".join(PUBLISHED_SIZES),
        ),
        (("12 MB", "[1]"), "x.yaml:9 workloads.0.size: must be text, got [1]"),
        (
            ("bandwidth_scale: 20000", "bandwidth_scale:"),
            "x.yaml:5 fabric.bandwidth_scale: must be a number or 'auto', got null",
        ),
    ],
)
def test_numbers_and_quantities(file: Path, change: tuple[str, str], message: str) -> None:
    assert problems(file, GOOD.replace(*change)) == [message]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "fabrik.domains=4",
            "--set fabrik: unknown key 'fabrik' (did you mean 'fabric'?)",
        ),
        (
            "repeats=&a [*a]",
            "--set repeats=&a [*a]: the value is out of bounds: an alias repeats the value "
            "that it is in",
        ),
        (
            "repeats=2001-99-99",
            "--set repeats=2001-99-99: the value is not YAML: month must be in 1..12",
        ),
    ],
)
def test_overrides(file: Path, override: str, message: str) -> None:
    assert problems(file, GOOD, override) == [message]


def test_an_override_reaches_into_an_earlier_one(file: Path) -> None:
    file.write_text(GOOD)
    workload = "{collective: all-to-all, algorithm: direct, size: 1 MB}"
    scenario = load(file, [f"workloads=[{workload}]", "workloads.0.size=3 MB"])
    assert {case.emulated_bytes for case in scenario.cases} == {3_000_000}


def test_the_last_override_of_a_key_counts(file: Path) -> None:
    file.write_text(GOOD)
    scenario = load(file, ["fabric.domains=2", "fabric.domains=8"])
    assert {fabric.domains for fabric in scenario.fabrics} == {8}


@pytest.mark.parametrize(
    ("stem", "name"), [("My first.try", "my-first-try"), ("Größe", "gr-e"), ("__", "scenario")]
)
def test_a_files_name_becomes_a_name_for_containers(file: Path, stem: str, name: str) -> None:
    named = file.with_name(f"{stem}.yaml")
    named.write_text(GOOD)
    assert load(named).name == name


ODD = st.text(st.sampled_from("{}[]:,-!&*|>\"'%#?~ \n\tae019.xb"), max_size=30)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ODD, ODD)
def test_no_text_and_no_override_ends_in_a_traceback(file: Path, text: str, value: str) -> None:
    for content, override in ((text + "\n" + GOOD, "seed=1"), (GOOD, f"seed={value}")):
        file.write_text(content)
        with suppress(InputError):
            load(file, [override])
