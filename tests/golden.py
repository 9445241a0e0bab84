"""Golden measurements: what one small run under the virtual clock must give, on every machine.

    sudo .venv/bin/python -m tests.golden

renews `tests/system/golden.json`, for a reviewer to read. Bytes and paths are exact; another
program or package moves completion times a little, and the latencies that predictions start from.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SCENARIO = ROOT / "tests" / "system" / "golden.yaml"
GOLDEN = ROOT / "tests" / "system" / "golden.json"


def command(store: Path) -> list[str]:
    """The command of a golden run, which is computed even if its result is known."""
    words = ["run", str(SCENARIO), "--clock", "virtual", "--fresh", "--json", "--store", str(store)]
    return [str(ROOT / "railbed"), *words]


def measurements(result: dict[str, Any]) -> dict[str, Any]:
    """The part of a run's JSON object that is golden."""
    return {
        "cases": [
            {
                "case": case["case"],
                "bytes": case["bytes"],
                "modeled_s": case["modeled_s"],
                "measured_s": case["measured_s"]["values"],
            }
            for case in result["cases"]
        ],
        "paths": [
            {"fabric": fabric["kind"], "as_intended": fabric["as_intended"]}
            for fabric in result["paths"]["fabrics"]
        ],
    }


def main() -> None:
    """Run, and write the file."""
    done = subprocess.run(command(ROOT / "runs"), stdout=subprocess.PIPE, text=True, check=True)
    GOLDEN.write_text(json.dumps(measurements(json.loads(done.stdout)), indent=1) + "\n")


if __name__ == "__main__":
    main()
