"""Execute the long runs of the documentation, one after the other, and keep how each ended.

    sudo .venv/bin/python -m tests.shown              those whose code has changed, or that failed
    sudo .venv/bin/python -m tests.shown --only ray   those whose command contains the word
    sudo .venv/bin/python -m tests.shown --record     benchmarks write the documentation's figures
    .venv/bin/python -m tests.shown --table           none: renews the documentation's table

Each outcome is written when its command ends: an interrupted call goes on where it was. Output goes
to a file for each command, in the folder that is named at the start.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from tests.shown.checks import put_readers_files, with_values
from tests.shown.long_runs import LongRun, Record, is_current, keep, long_runs, show
from tests.shown.pages import ROOT

MOST_S = 4 * 3600
# Commands that write a figure when asked to.
RECORDING = ("railbed bench ", "railbed paper --measure ", ".venv/bin/python -m tests.fuzz")


def main() -> None:
    """Execute what the arguments ask for; exit code 1 if a command did not pass."""
    options = arguments()
    if options.table:
        show()
        return
    runs = [
        run
        for run in long_runs()
        if options.only in run.command and (options.again or not is_current(run))
    ]
    logs = Path(mkdtemp(prefix="railbed-long-runs-"))
    print(f"{len(runs)} commands; the output of each is in {logs}.", flush=True)
    records = [execute(run, logs, record=options.record) for run in runs]
    sys.exit(any(record.outcome != "pass" for record in records))


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="tests.shown", description=__doc__, formatter_class=as_written
    )
    parser.add_argument("--only", default="", metavar="WORD", help="commands with this word")
    parser.add_argument("--again", action="store_true", help="also what passed with this code")
    parser.add_argument("--record", action="store_true", help="benchmarks write their figures")
    parser.add_argument("--table", action="store_true", help="renew the table alone")
    return parser.parse_args()


def execute(run: LongRun, logs: Path, *, record: bool) -> Record:
    """Execute a long run in a folder of its own, and keep how it ended; `record` keeps figures."""
    log = logs / f"{re.sub(r'[^a-z0-9]+', '-', run.command.lower())[:80].strip('-')}.log"
    print(f"{run.command}: ", end="", flush=True)
    recording = " --record" if record and run.command.startswith(RECORDING) else ""
    begun_s = time.monotonic()
    with TemporaryDirectory(prefix="railbed-shown-") as name:
        Path(name).chmod(0o755)  # ranks in containers are nobody
        code = exit_code(f"{run.command}{recording}", Path(name), log)
    duration_s = time.monotonic() - begun_s
    ended = Record(
        command=run.command,
        commit=said("git", "rev-parse", "--short", "HEAD"),
        date=str(date.today()),
        machine=machine(),
        digest=run.digest,
        outcome="pass" if code == 0 else f"exit code {code}: {last_line(log)}",
        duration_s=f"{duration_s:.0f}",
    )
    keep(ended)
    print(ended.outcome, flush=True)
    return ended


def exit_code(command: str, folder: Path, log: Path) -> int:
    """Execute a command where its reader would: in the repository, or beside files of his own."""
    place = ROOT
    if command.startswith("railbed "):
        place = folder
        put_readers_files(folder)
        (folder / "testbed").symlink_to(ROOT / "testbed")
        # Containers of `exec` see the reader's folder, and no link out of it.
        shutil.copytree(ROOT / "scenarios", folder / "scenarios")
    with log.open("w") as output:
        try:
            return subprocess.run(
                ["bash", "-c", with_values(command)],
                cwd=place,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PATH": f"{ROOT}:{os.environ['PATH']}"},
                timeout=MOST_S,
            ).returncode
        except subprocess.TimeoutExpired:
            return 124


def last_line(log: Path) -> str:
    """Return the last reason of a failed verdict that a command printed, or its last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    reasons = [line for line in lines if line.startswith("fail: ")]
    return (reasons or lines or ["no output"])[-1][:120].replace("|", "/")


def said(*command: str) -> str:
    """Return a command's output."""
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def machine() -> str:
    """Cores, memory and kernel of this machine."""
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    kernel = ".".join(platform.release().split(".")[:2])
    return f"{os.cpu_count()} cores, {gib:.0f} GiB, {kernel}"


if __name__ == "__main__":
    if shutil.which("git") is None:
        sys.exit("git is missing: the record of a long run names the commit.")
    main()
