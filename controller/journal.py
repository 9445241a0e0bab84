"""The journal of the controller's observations and actions; one JSON object per line.

Events: `listening`, `connected`, `disconnected`; `detected` (a link that failed, is degraded to a
lower rate, drained, or usable again), `died` (a proxy); for each change `computed`, `sent`,
`installed` (for each round of rules before the routes), `routes`, `confirmed` (all pairs use their
new paths) and `settled` (the old rules and routes are removed); `ready`, when all switches have
their desired state; `error`. In `computed`, `failed` are all links not used; `drained` are those
among them that work. `ns` is CLOCK_MONOTONIC, which the whole machine shares.
"""

import json
import os
import time
import traceback
from pathlib import Path
from typing import NoReturn

SOFTWARE_ERROR = 70  # EX_SOFTWARE of sysexits.h


class Journal:
    """Appends events; each is in the file when the call returns."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def write(self, event: str, **facts: object) -> None:
        """Append one event with its facts."""
        line = {"ns": time.monotonic_ns(), "event": event, **facts}
        self._file.write(json.dumps(line) + "\n")

    def end_with_error(self, where: str) -> NoReturn:
        """Report the exception being handled, and end the process, also where nothing can be said.

        An error of its own would return to Ryu, which would only log it: the file system is full.
        """
        text = traceback.format_exc()
        try:
            self.write("error", where=where, traceback=text)
            print(text, flush=True)
        finally:
            os._exit(SOFTWARE_ERROR)
