"""Print every error message of the program, for one reader to read in one go.

    .venv/bin/python -m tests.messages

A message is the text of an exception, of a problem of an input, or of an issue of a file; what is
filled in stands in braces. A text that a variable holds is that of its assignments in the function.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from linux.files.program_files import ROOMS, ROOT

CARRIERS = ("Problem", "Issue")


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each message of a module."""
    for function in ast.walk(ast.parse(path.read_text())):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        texts = _texts_of_names(function)
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and _is_a_message(call, function):
                yield call.lineno, " | ".join(filter(None, (_said(a, texts) for a in call.args)))


def _is_a_message(call: ast.Call, function: ast.AST) -> bool:
    raised = (node.exc for node in ast.walk(function) if isinstance(node, ast.Raise))
    name = ast.unparse(call.func).rpartition(".")[2]
    return name in CARRIERS or (call in raised and name[0].isupper())


def _texts_of_names(function: ast.AST) -> dict[str, str]:
    """The texts that are assigned to names of a function, by name."""
    texts: dict[str, list[str]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            pairs = (
                zip(target.elts, value.elts, strict=False)
                if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
                else [(target, value)]
            )
            for name, one in pairs:
                if isinstance(name, ast.Name) and (text := _text(one)):
                    texts.setdefault(name.id, []).append(text)
    return {name: " / ".join(several) for name, several in texts.items()}


def _said(argument: ast.expr, texts: dict[str, str]) -> str:
    """The text of an argument; empty if it is none."""
    if isinstance(argument, ast.Name):
        return texts.get(argument.id, "")
    return _text(argument)


def _text(node: ast.expr) -> str:
    """A string, or an f-string with its expressions in braces; empty for all else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.FormattedValue):
        return f"{{{ast.unparse(node.value)}}}"
    if isinstance(node, ast.IfExp):
        return f"{_text(node.body)} / {_text(node.orelse)}".strip(" /")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return ""


def main() -> None:
    """Print the messages of all modules."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            for line, text in sorted(set(messages(path))):
                if text:
                    print(f"{path.relative_to(ROOT)}:{line}: {text}")


if __name__ == "__main__":
    main()
