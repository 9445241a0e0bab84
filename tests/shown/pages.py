"""Find the commands that the documentation shows.

Each line of a code block that begins with a program is a command, and so is code within a sentence
that begins with one of Railbed's own programs. `sudo`, `./` and comments are no part of it.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Its table is made from what this package knows.
OWN = ROOT / "docs" / "reference" / "checks.md"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
TABLE = "| command | outcome |"
BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
PROGRAM = r"(?:\./railbed|\.venv/bin/python|vagrant|docker|testbed/\S+\.sh|tests/\S+\.sh)"
IN_A_BLOCK = re.compile(
    rf"(?:{PROGRAM}|railbed|/\S+/railbed|sudo|git|uv|pip|cd|export|[A-Z_]+=\S+)\s"
)
IN_A_SENTENCE = re.compile(rf"(?:sudo )?(?:[A-Z_]+=\S+ )*{PROGRAM} ")


def shown() -> dict[str, set[str]]:
    """Return each command that is shown, with the pages that show it."""
    commands: dict[str, set[str]] = {}
    for page in PAGES:
        text = page.read_text()
        for command in commands_of(text.partition(TABLE)[0] if page == OWN else text):
            commands.setdefault(command, set()).add(str(page.relative_to(ROOT)))
    return commands


def commands_of(text: str) -> list[str]:
    """Return the commands of a page in Markdown, in order."""
    lines = [
        line.strip()
        for block in BLOCK.findall(text)
        for line in block.replace("\\\n", " ").splitlines()
    ]
    blocks = [line for line in lines if IN_A_BLOCK.match(line)]
    sentences = [code for code in CODE.findall(BLOCK.sub("", text)) if IN_A_SENTENCE.match(code)]
    return [plain(command) for command in (*blocks, *sentences)]


def plain(command: str) -> str:
    """Return a command without `sudo`, `./`, its comment, and repeated spaces."""
    command = re.sub(r"\s+#\s.*$", "", command)
    return " ".join(command.removeprefix("sudo ").removeprefix("./").split())
