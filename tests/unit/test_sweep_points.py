"""Sweep points from lists of values: all combinations, and all problems at once."""

import shutil
from io import StringIO
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from execution.sweep.points import MAX_POINTS, axes, axis, check_again, planned
from model.errors import InputError, Problem
from model.sweep import Sweep
from scenarios.format.document import refuse_comments, value_of
from scenarios.library_files import LIBRARY, library
from scenarios.load import load
from scenarios.scenario import Scenario
from tests.unit.test_scenarios import GOOD

# ruamel.yaml writes texts such as `: a` into a list without quotes, and cannot read `[: a]`.
TEXT = st.text("ab ,:#[]{}'\"-\n", max_size=9).filter(lambda text: not text.startswith(": "))
SIMPLE = st.one_of(st.integers(), st.booleans(), st.none(), TEXT)
VALUES = st.recursive(SIMPLE, lambda inner: st.lists(inner, max_size=3), max_leaves=5)


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    place = tmp_path / "x.yaml"
    place.write_text("# what it is for\n" + GOOD)
    return place


def any_scenario(_: Scenario) -> None:
    """Accept every scenario."""


def sweep(path: Path, *over: str, overrides: tuple[str, ...] = ()) -> Sweep:
    return planned(path, over, overrides, "process", any_scenario)


def listed(values: list[Any]) -> str:
    """Values as a YAML list without its brackets."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style, yaml.width = True, 10**6
    text = StringIO()
    yaml.dump(values, text)
    return text.getvalue().strip()[1:-1]


@given(st.lists(VALUES, min_size=1, max_size=5, unique_by=repr))
def test_a_list_holds_whatever_a_value_can_be(values: list[Any]) -> None:
    settings = axis(f"key={listed(values)}")
    for setting in settings:
        refuse_comments(setting.text)
    assert [setting.value for setting in settings] == values
    assert [value_of(setting.text) for setting in settings] == values


@settings(max_examples=15)
@given(
    st.dictionaries(
        st.sampled_from(["fabric.domains", "fabric.domain_size", "repeats", "seed"]),
        st.lists(st.integers(2, 9), min_size=1, max_size=3, unique=True),
        min_size=1,
        max_size=3,
    )
)
def test_points_are_all_combinations_each_once(
    tmp_path_factory: pytest.TempPathFactory, over: dict[str, list[int]]
) -> None:
    place = tmp_path_factory.mktemp("sweep") / "x.yaml"
    place.write_text(GOOD)
    found = sweep(place, *(f"{key}={','.join(map(str, values))}" for key, values in over.items()))
    assert [point.number for point in found.points] == [*range(1, len(found.points) + 1)]
    assert len({point.settings for point in found.points}) == prod(map(len, over.values()))
    for point in found.points:
        assert [setting.key for setting in point.settings] == list(over)
        assert all(setting.value in over[setting.key] for setting in point.settings)


@pytest.mark.parametrize(
    "values",
    [
        ("repeats", "1", "1"),
        ("fabric.bandwidth_scale", "20000", "2e4"),
        ("workloads.0.size", "1 MB", "1000kB"),
        ("fabric.kinds", "rail-only", "[rail-only]"),
        ("workloads.0.communicator", "[d0g0, d1g0]", "[ d0g0,d1g0 ]"),
        (
            "expect",
            "{ratio_limit: 0.5, ratio_within: 0.1}",
            "{ratio_within: 1e-1, ratio_limit: .5}",
        ),
    ],
)
def test_values_written_in_two_ways_are_one_point(
    scenario: Path, values: tuple[str, str, str]
) -> None:
    key, one, other = values
    with pytest.raises(InputError) as caught:
        sweep(scenario, f"{key}={one},{other}")
    same = f"--over: point 2 ({key}={other}) is the same as point 1 ({key}={one})"
    assert same in str(caught.value)


def test_a_value_given_twice_is_told_once(scenario: Path) -> None:
    with pytest.raises(InputError) as caught:
        sweep(scenario, "repeats=5,6,5", "seed=1,2,3")
    same = "point 7 (repeats=5, seed=1) is the same as point 1 (repeats=5, seed=1)"
    assert str(caught.value) == f"--over: {same} (leave one out)"


def test_a_place_that_no_value_can_have_is_refused_as_such() -> None:
    """Without their values, all points are the same."""
    with pytest.raises(InputError) as caught:
        sweep(LIBRARY / "quickstart.yaml", "repeats.x=1,2")
    refused = [problem.what for problem in caught.value.problems]
    assert refused == ["repeats is a scalar; it has no keys"] * 2


def test_parts_of_a_byte_tell_sizes_apart() -> None:
    """A request has thousands of tokens."""
    sizes = "workloads.0.token_size=1000 B,1000.4 B"
    assert len(sweep(LIBRARY / "inference.yaml", sizes).points) == 2


@pytest.mark.parametrize("path", library(), ids=lambda path: path.stem)
def test_a_points_text_alone_is_its_scenario(path: Path, tmp_path: Path) -> None:
    for point in sweep(path, "seed=3,4", overrides=("repeats=2",)).points:
        alone = tmp_path / "scenario.yaml"
        alone.write_text(point.text)
        overrides = ["repeats=2", *map(str, point.settings)]
        assert load(alone) == load(path, overrides)
        assert load(alone).name == path.stem


def test_comments_stay(scenario: Path) -> None:
    assert "# what it is for" in sweep(scenario, "repeats=1").points[0].text


@pytest.mark.parametrize("change", ["scenario", "values", "proxies"])
def test_other_points_have_another_digest(scenario: Path, change: str) -> None:
    before = sweep(scenario, "repeats=1,2")
    assert before == sweep(scenario, "repeats=1,2")
    if change == "scenario":
        scenario.write_text(GOOD.replace("12 MB", "13 MB"))
    over = "repeats=1,3" if change == "values" else "repeats=1,2"
    proxies = "container" if change == "proxies" else "process"
    after = planned(scenario, [over], [], proxies, any_scenario)
    assert before.digest != after.digest
    assert before.name != after.name


def problems(path: Path, *over: str, overrides: tuple[str, ...] = ()) -> list[str]:
    with pytest.raises(InputError) as caught:
        sweep(path, *over, overrides=overrides)
    return str(caught.value).replace(str(path), "x.yaml").splitlines()


def test_the_problems_of_all_points_are_said_at_once(scenario: Path) -> None:
    assert problems(scenario, "fabric.domains=0,4", "repeats=1,x") == [
        "point 1 (fabric.domains=0, repeats=1), also 2: "
        "--over fabric.domains: must be at least 1, got 0",
        "point 2 (fabric.domains=0, repeats=x), also 4: "
        "--over repeats: must be a whole number or 'auto', got 'x'",
    ]


def test_a_key_that_leads_nowhere_is_named_with_the_option_of_the_sweep(scenario: Path) -> None:
    (problem,) = problems(scenario, "workloads.5.size=8 MB")
    assert ": --over workloads.5.size=8 MB: the list has 1 entry, number 0, got 5" in problem
    (problem,) = problems(scenario, "fabric.nokey.x=1,2")
    assert problem.startswith("--over fabric.nokey: unknown key 'nokey'")


def test_what_all_points_have_is_the_scenarios_own_problem(scenario: Path) -> None:
    scenario.write_text(GOOD.replace("12 MB", "12 furlongs"))
    (problem,) = problems(scenario, "repeats=1,2,3")
    assert problem.startswith("x.yaml:9 workloads.0.size: unknown unit 'furlongs'")


def test_what_this_machine_cannot_do_is_said_of_each_point(scenario: Path) -> None:
    def no_large_one(found: Scenario) -> None:
        if found.repeats.least > 1:
            raise InputError(Problem("faults", "are not possible here"))

    with pytest.raises(InputError, match=r"point 2 \(repeats=2\): faults: are not possible here"):
        planned(scenario, ["repeats=1,2"], [], "process", no_large_one)


def test_stored_points_are_checked_again(scenario: Path, tmp_path: Path) -> None:
    points = sweep(scenario, "repeats=1,2").points
    scenario.write_text(points[0].text)
    bad = tmp_path / "bad.yaml"
    bad.write_text(points[1].text.replace("repeats: 2", "repeat: 2"))
    places = {1: scenario, 2: bad}
    with pytest.raises(InputError, match=r"point 2 \(repeats=2\): .*unknown key 'repeat'"):
        check_again(points, lambda point: places[point.number], any_scenario)


def test_files_that_a_scenario_names_are_a_part_of_the_sweep(scenario: Path) -> None:
    trace = scenario.parent / "some.goal"
    shutil.copy(LIBRARY / "traces" / "pipeline.goal", trace)
    scenario.write_text(
        "fabric: {domains: 2, domain_size: 2, platform: dgx-h100, bandwidth_scale: 20000}\n"
        "workloads: [{trace: some.goal, size_scale: 100}]\n"
    )
    begun = sweep(scenario, "repeats=1,2")
    places = {point.number: scenario.parent / f"{point.number}.yaml" for point in begun.points}
    for point in begun.points:
        places[point.number].write_text(point.text)
    check_again(begun.points, lambda point: places[point.number], any_scenario)
    trace.write_text(trace.read_text() + "// changed\n")
    assert sweep(scenario, "repeats=1,2").name != begun.name
    with pytest.raises(InputError, match=r"point 1 .*, a file that it names, or a plugin has"):
        check_again(begun.points, lambda point: places[point.number], any_scenario)


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ((), "--over: needs at least one key with its values (such as --over fabric.domains=2"),
        (("repeats",), "--over repeats: must be key=value,value,... such as fabric.domains=2,4,8"),
        (("=1",), "--over =1: must be key=value"),
        (("repeats=",), "--over repeats=: needs values after the ="),
        (("repeats=1,,2",), "--over repeats=1,,2: the list of values is not YAML"),
        (("repeats=1], [2",), "--over repeats=1], [2: the list of values is not YAML"),
        (("description=a #x, b",), "--over description=a #x, b: a space and # begin a comment"),
        (("repeats=1", "repeats=2"), "--over repeats: cannot be combined with --over repeats ("),
        (
            ("fabric.domains=2,4", "fabric={domains: 8}, {domains: 2}"),
            "--over fabric: cannot be combined with --over fabric.domains (leave one out)",
        ),
        (
            ("workloads.1.size=1 MB", "workloads.01.size=2 MB"),
            "--over workloads.01.size: cannot be combined with --over workloads.1.size",
        ),
        (("seed=1", "repeats=1"), "--set seed: cannot be combined with --over seed (leave one"),
        (
            (f"seed={','.join(map(str, range(MAX_POINTS + 1)))}",),
            "--over: must make at most 1000 points, got 1001",
        ),
    ],
)
def test_lists_that_are_none(over: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError) as caught:
        axes(over, ["seed=7"] if len(over) == 2 else [])
    assert message in str(caught.value)


def test_lists_may_change_a_part_of_what_is_set() -> None:
    (changes,) = axes(["fabric.domains=2,4"], ["fabric={domains: 8, domain_size: 2}"])
    assert [change.value for change in changes] == [2, 4]


def test_a_key_of_many_digits_is_no_number() -> None:
    assert len(axes([f"{'1' * 5000}=1", "repeats=1,2"], [])) == 2


@given(st.text(max_size=20))
def test_no_list_ends_in_a_traceback(text: str) -> None:
    found: Any = ()
    try:
        found = axis(f"key={text}")
    except ValueError as error:
        found = str(error)
    assert found
