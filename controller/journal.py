"""The journal: what the controller saw and did, and when; one JSON object a line.

Events: `listening`, `connected`, `computed`, `sent`, `confirmed`, `routes`, `ready`,
`disconnected`, `error`. `ns` is CLOCK_MONOTONIC, which the whole machine shares.
"""

import json
import time
from pathlib import Path


class Journal:
    """Appends events; each is in the file when the call returns."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def write(self, event: str, **facts: object) -> None:
        """Append one event with its facts."""
        line = {"ns": time.monotonic_ns(), "event": event, **facts}
        self._file.write(json.dumps(line) + "\n")
