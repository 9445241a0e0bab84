"""Railbed from Python, as far as nothing is brought up."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands.notebook import TABLES, load, open_run
from model.errors import InputError
from scenarios.format.document import parser
from tests.playground import SAMPLE
from tests.unit.run_folders import begun_run

RESULT = json.loads(SAMPLE.read_text())


def test_changes_add_up_and_are_checked() -> None:
    quickstart = load("quickstart", {"fabric.domains": 2, "fabric.kinds": "rail-only"})
    smaller = quickstart.changed({"fabric.domain_size": 2})
    assert [spec.gpus for spec in quickstart.scenario.fabrics] == [8]
    assert [spec.gpus for spec in smaller.scenario.fabrics] == [4]
    with pytest.raises(InputError, match="must be at least 1, got 0"):
        smaller.changed({"fabric.domains": 0})
    with pytest.raises(InputError, match="not found"):
        load("nowhere.yaml")
    with pytest.raises(InputError, match="clock: must be real or virtual, got 'foo'"):
        load("quickstart", clock="foo")  # type: ignore[arg-type]


def test_the_virtual_clock_has_no_containers() -> None:
    with pytest.raises(InputError, match="--proxies: must be process with the virtual clock"):
        load("quickstart", clock="virtual").run(proxies="container")


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("fabric.domains", np.int64(2), "2"),
        ("fabric.bandwidth_scale", np.float32(20_000), "20000.0"),
        ("check_paths", np.bool_(False), "false"),
        ("repeats", np.array(2), "2"),
    ],
)
def test_a_number_of_numpy_is_a_value(key: str, value: object, text: str) -> None:
    changed = load("quickstart", {key: value}).scenario
    assert changed == load("quickstart", {key: json.loads(text)}).scenario


@settings(max_examples=20)
@given(st.text(st.characters(exclude_categories=["C"]), max_size=20))
def test_any_text_is_a_value(text: str) -> None:
    changed = load("quickstart", {"description": text}).scenario
    assert parser("safe").load(changed.text)["description"] == text


@pytest.mark.parametrize("value", [object(), {1}, 1j, np.datetime64("2026-01-01"), [[0, Path()]]])
def test_what_yaml_has_no_value_of_is_bad_input(value: object) -> None:
    with pytest.raises(InputError, match=r"fabric.domains: cannot be a value of a scenario: got "):
        load("quickstart", {"fabric.domains": value})


def test_a_stored_run_has_its_cases_as_columns(tmp_path: Path) -> None:
    folder = begun_run(tmp_path, "20260105-120000-quickstart-abcd", "", {})
    folder.complete(RESULT)
    run = open_run("latest", tmp_path)
    cases = run.table("cases")
    assert run.verdict == RESULT["verdict"]
    assert cases["case_name"].tolist() == [case["case"] for case in RESULT["cases"]]
    assert cases["ratio"].dtype == np.float64
    assert cases["ratio"].tolist() == [case["ratio"] for case in RESULT["cases"]]
    assert {len(column) for column in cases.values()} == {len(RESULT["cases"])}
    # A column without any value, too, is of its kind.
    jobs = run.table("interference")
    assert jobs["alone_s"].dtype == np.float64
    assert {jobs[name].dtype for name in ("alone", "job", "verdict")} == {np.dtype("O")}
    with pytest.raises(InputError, match="must be one of cases, failures, "):
        run.table("nothing")
    assert "transfers" in TABLES


def test_a_run_without_a_name_is_none(tmp_path: Path) -> None:
    begun_run(tmp_path, "20260105-120000-quickstart-abcd", "", {}).complete(RESULT)
    with pytest.raises(InputError, match="no run named ''"):
        open_run("", tmp_path)


def test_a_plot_has_a_mark_for_each_time(tmp_path: Path) -> None:
    folder = begun_run(tmp_path, "20260105-120000-quickstart-abcd", "", {})
    folder.complete(RESULT)
    figure = open_run("latest", tmp_path).plot()
    (axes,) = figure.axes
    measured, modeled = (
        np.concatenate([line.get_xdata() for line in axes.lines if line.get_marker() == mark])
        for mark in ("o", "|")
    )
    assert measured.tolist() == [case["measured_s"]["median"] for case in RESULT["cases"]]
    assert modeled.tolist() == [case["modeled_s"] for case in RESULT["cases"]]
