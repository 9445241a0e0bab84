"""The documentation is true."""

import re
import shutil
import tomllib
from itertools import product
from pathlib import Path

import pytest

from linux.files.program_files import ROOMS, ROOT
from model.fabric.spec import PLATFORMS
from model.prediction.nccl_tuning import VERSION
from model.training.traffic import Dimension
from model.workload.transfers.collective import Collective
from scenarios.format.units import PUBLISHED_SIZES, SIZES, parse_quantity
from scenarios.library_files import LIBRARY
from scenarios.load import load
from tests.unit.machines import TWO_CORES
from traffic_gen.traces.reading import FORMATS
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS, MODELED, algorithms_of

SCENARIOS = ROOT / "docs" / "reference" / "scenarios.md"
TRAINING = ROOT / "docs" / "reference" / "training.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Scenarios that are shown, and parts of scenarios, with what completes these.
SHOWN = [
    pytest.param(text, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, text in enumerate(re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.M | re.S))
]
DEFAULTS = {
    "fabric": "{domains: 4, domain_size: 4, platform: dgx-h100}",
    "workloads": "[{collective: all-reduce, algorithm: hierarchical, size: 12 MB}]",
}


def test_every_library_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    pinned = sum(project["dependency-groups"].values(), project["project"]["dependencies"])
    text = (ROOT / "docs" / "reference" / "libraries.md").read_text()
    for requirement in pinned:
        assert f"| `{requirement.split('==')[0]}` |" in text


def require_in_reference(text: str) -> None:
    """Fail unless the reference of scenarios contains a text, wherever its lines end."""
    found = text in " ".join(SCENARIOS.read_text().split())
    assert found, f"missing in docs/reference/scenarios.md: {text}"


def test_every_algorithm_is_listed() -> None:
    for collective in Collective:
        names = ", ".join(f"`{name}`" for name in algorithms_of(collective))
        require_in_reference(f"| `{collective}` | {names} |")
    for _, name in MODELED:
        require_in_reference(f"by `{name}`, in which")
    require_in_reference(f"tuning model of NCCL {VERSION}")


def test_every_closed_form_is_listed() -> None:
    page = (ROOT / "docs" / "explanation" / "model.md").read_text()
    table = page.partition("| collective | algorithm | time |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", table, re.MULTILINE)
    names = ([re.findall(r"`([\w-]+)`", cell) for cell in row] for row in rows)
    assert {pair for row in names for pair in product(*row)} == {*ALGORITHMS, *MODELED}


def test_every_format_of_traces_is_listed() -> None:
    page = (ROOT / "docs" / "guides" / "traces.md").read_text()
    table = page.partition("| format | files | definition |")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)) == sorted(FORMATS)


def test_every_platform_and_every_published_size_is_listed() -> None:
    platforms = ", ".join(f"`{name}`" for name in PLATFORMS)
    require_in_reference(f"In `model/fabric/spec.py`: {platforms}.")
    rows = re.findall(r"^\| `([\w.-]+)` \| ([\d.]+ [MG]B) \|", SCENARIOS.read_text(), re.MULTILINE)
    assert [name for name, _ in rows] == list(PUBLISHED_SIZES)
    sizes = {name: parse_quantity(size, SIZES) for name, size in rows}
    assert sizes == pytest.approx(PUBLISHED_SIZES, rel=2e-3)


def test_every_json_object_of_a_command_is_described() -> None:
    text = (ROOT / "docs" / "reference" / "commands.md").read_text()
    for room in ("commands", "results", "studies"):
        for path in (ROOT / room).rglob("*.py"):
            for schema in re.findall(r'"(railbed\.[\w-]+/\d+)"', path.read_text()):
                assert schema in text, (path.name, schema)
    (bytes_of,) = re.findall(r'"bytes": \{(.*?)\}, "idle_pairs"', text)
    assert {dimension.value for dimension in Dimension} == set(re.findall(r'"(\w+)"', bytes_of))


def test_links_and_named_files_and_tests_exist() -> None:
    named_file = rf"`((?:{'|'.join((*ROOMS, 'tests', 'docs'))})/[\w/.-]+\.\w+)`"
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for page in PAGES:
        text = page.read_text()
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (page.parent / target).exists(), (page.name, target)
        for name in re.findall(named_file, text):
            assert "NAME" in name or (ROOT / name).exists(), (page.name, name)
        for name in re.findall(r"`(test_\w+)`", text):
            assert f"def {name}(" in tests, (page.name, name)


@pytest.mark.parametrize("text", SHOWN)
def test_a_scenario_that_is_shown_is_valid(text: str, tmp_path: Path) -> None:
    for name in ("traces/pipeline.goal", "networks/two-hosts.yml"):
        shutil.copy(LIBRARY / name, tmp_path)
    (configuration,) = re.findall(r"^```\n(layers: .*?)^```", TRAINING.read_text(), re.M | re.S)
    (tmp_path / "mine.yaml").write_text(configuration)
    missing = DEFAULTS.keys() - set(re.findall(r"^\w+", text, re.M))
    scenario = tmp_path / "shown.yaml"
    scenario.write_text(text + "".join(f"{key}: {DEFAULTS[key]}\n" for key in missing))
    assert load(scenario, machine=TWO_CORES).cases


def test_a_command_in_a_message_is_called_as_in_the_clone() -> None:
    strings = re.compile(r'(?<!")"[^"\n]*[`(]railbed ')
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        assert not strings.search(path.read_text()), path
