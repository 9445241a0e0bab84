"""The guide on Python is a notebook that works, cell by cell."""

import re
from pathlib import Path
from typing import Any

import pytest

from results.store.runs import stored_runs

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "python.md"

pytestmark = [
    pytest.mark.system,
    pytest.mark.integration,
    pytest.mark.usefixtures("untouched_machine"),
]


def test_every_cell_of_the_guide_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL):
        exec(cell, names)
    (folder,) = stored_runs(tmp_path / "runs")
    assert names["run"].folder == names["again"].folder == folder.resolve()
    assert names["cases"]["case_name"].tolist() == [c.name for c in names["small"].scenario.cases]
    assert (names["duration_ms"] > 0).all()
    assert len(names["transfers"]["case_name"]) == len(names["duration_ms"])
    assert (tmp_path / "completion-times.png").stat().st_size > 0
