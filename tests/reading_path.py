"""Count the files on the way from a command to its output.

    sudo .venv/bin/python -P tests/reading_path.py [--show] ROOT ARGUMENT...

Executes `railbed ARGUMENT...` of the tree in ROOT, and follows the main thread as a reader would:
each function is read once, where it is called first. Modules and class bodies, which an import
executes, are no functions; lambdas, comprehensions and generator expressions are read with the
function around them. Prints how many files of the tree that takes, how often the reader comes back
to a file already left, and how many lines the product has.
"""

import inspect
import runpy
import sys
from pathlib import Path
from types import CodeType, FrameType


def rooms(root: Path) -> tuple[str, ...]:
    """The packages of a tree, as its own program names them."""
    named: tuple[str, ...] = runpy.run_path(str(root / "linux/files/program_files.py"))["ROOMS"]
    return named


def walk(root: Path, arguments: list[str]) -> list[str]:
    """Return the files of first-called functions, in order, without immediate repetitions."""
    sys.path.insert(0, str(root))
    entered: set[tuple[str, int]] = set()
    files: list[str] = []
    of_product = rooms(root)

    def look(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        function = (code.co_filename, code.co_firstlineno)
        if event != "call" or function in entered or not is_function(code):
            return
        entered.add(function)
        place = Path(code.co_filename)
        if place.is_relative_to(root) and place.relative_to(root).parts[0] in of_product:
            name = str(place.relative_to(root))
            if not files or files[-1] != name:
                files.append(name)

    sys.argv = ["railbed", *arguments]
    sys.setprofile(look)
    try:
        runpy.run_module("commands", run_name="__main__")
    except SystemExit as done:
        print(f"exit code {done.code}", file=sys.stderr)
    finally:
        sys.setprofile(None)
    return files


def is_function(code: CodeType) -> bool:
    """Whether code is a function with a name: no module, class body, lambda or comprehension."""
    return bool(code.co_flags & inspect.CO_OPTIMIZED) and not code.co_name.startswith("<")


def product_lines(root: Path) -> int:
    """Number of lines of all Python files of the product."""
    files = (file for room in rooms(root) for file in (root / room).rglob("*.py"))
    return sum(len(file.read_text().splitlines()) for file in files)


def main(arguments: list[str]) -> None:
    """Walk, and print the counts."""
    shown = arguments[:1] == ["--show"]
    root, *command = arguments[shown:]
    files = walk(Path(root).resolve(), command)
    if shown:
        print(*files, sep="\n", file=sys.stderr)
    distinct = len(set(files))
    print(f"files {distinct}, returns {len(files) - distinct}", file=sys.stderr)
    print(f"product lines {product_lines(Path(root))}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
