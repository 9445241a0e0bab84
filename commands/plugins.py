"""The option `--plugin` of all commands: algorithms of a user's own.

They are from Python files or from installed packages, which have a table like `ALGORITHMS` of
`traffic_gen/workloads/algorithms/collectives.py`. Without them, a command that needs no algorithm
imports none.
"""

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from numbers import Integral, Real
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Annotated, Any

import typer

from model.errors import InputError, Problem

if TYPE_CHECKING:
    from scenarios.scenario import Scenario

OPTION, VARIABLE = "--plugin", "RAILBED_PLUGIN"
PAGE = "docs/guides/extending.md"
# The group of entry points by which an installed package names its table.
GROUP = "railbed.algorithms"
TABLE = "ALGORITHMS"
# Of an algorithm's functions; the one that builds its transfers is proved.
RETURNS = {"completion_s": Real, "steps": Integral, "count": Integral, "shards": Integral}

Plugins = Annotated[
    list[Path],
    typer.Option(OPTION, envvar=VARIABLE, help="a Python file of algorithms; repeatable"),
]


def enter_plugins(files: Sequence[Path]) -> None:
    """Register the algorithms of installed packages and of files.

    They hold for this process and its children. Raises `InputError` for a wrong one.
    """
    where = GROUP
    try:
        enter_installed()
        for file in files:
            where = str(file)
            _enter_file(file)
    except ValueError as error:
        raise InputError(Problem(where, str(error), f"see {PAGE}")) from error
    if files:
        os.environ[VARIABLE] = os.pathsep.join(str(file.absolute()) for file in files)


def raised_by_plugin(error: Exception) -> InputError | None:
    """Name the line of a plugin that raised an error, if one did."""
    # Without plugins, this module need not be there, and takes long to import.
    known = getattr(sys.modules.get("traffic_gen.workloads.algorithms.collectives"), "PLUGINS", {})
    files = {str(file.absolute()) for file in known.values()}
    for frame in reversed(extract_tb(error.__traceback__)):
        if frame.filename in files:
            place, what = f"{frame.filename}:{frame.lineno}", f"raises {type(error).__name__}"
            return InputError(Problem(place, f"{what}: {error}", f"see {PAGE}"))
    return None


def plugin_options() -> list[str]:
    """Return the options that give this process's plugins to another."""
    files = os.environ.get(VARIABLE, "").split(os.pathsep)
    return [word for file in files if file for word in (OPTION, file)]


def _enter_file(path: Path) -> None:
    """Enter the algorithms of a Python file; raise `ValueError` with a sentence if it has none."""
    spec = importlib.util.spec_from_file_location(f"plugin_{path.stem}", path)
    # Unlike those of `Path`, these take what cannot be read for missing.
    if not os.path.exists(path):
        raise ValueError("not found")
    if spec is None or spec.loader is None or not os.path.isfile(path):
        raise ValueError("is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses look for their own module there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise ValueError(f"raises {type(error).__name__}: {error}") from error
    if not hasattr(module, TABLE):
        raise ValueError(f"must define the dictionary {TABLE}")
    _enter(getattr(module, TABLE), path)


def enter_installed() -> None:
    """Enter the algorithms of all installed packages; raise `ValueError` naming a bad one."""
    from importlib.metadata import entry_points

    for entry in entry_points(group=GROUP):
        try:
            _enter(entry.load(), Path(str(sys.modules[entry.module].__file__)))
        except (Exception, SystemExit) as error:
            raise ValueError(f"the entry point {entry.name} ({entry.value}): {error}") from error


def _enter(table: Any, file: Path) -> None:
    """Add algorithms of a file to the known ones, unless they are wrong or a name is taken."""
    from traffic_gen.workloads.algorithms.collectives import ALGORITHMS, PLUGINS

    if not isinstance(table, Mapping):
        raise ValueError(f"{TABLE} must be a dictionary, got {type(table).__name__}")
    for named, algorithm in table.items():
        _require_right(named, algorithm)
        if PLUGINS.get(named) != file and ALGORITHMS.get(named, algorithm) is not algorithm:
            raise ValueError(f"{named[0]} already has an algorithm {named[1]!r}")
        form = _checked(algorithm.closed_form, file)
        ALGORITHMS[named] = replace(_checked(algorithm, file), closed_form=form)
        PLUGINS[named] = file


def _require_right(named: Any, algorithm: Any) -> None:
    """Raise `ValueError` unless this is a collective with a name, and an algorithm."""
    from model.prediction.closed_forms import ClosedForm
    from model.workload.transfers.collective import Collective
    from traffic_gen.workloads.algorithms.collectives import Algorithm

    match named:
        case (Collective(), str() as name) if name:
            pass
        case _:
            raise ValueError(f"the key {named!r} must be a collective and a name")
    if not isinstance(algorithm, Algorithm):
        raise ValueError(f"{name!r} must be an Algorithm, got {type(algorithm).__name__}")
    if not isinstance(form := algorithm.closed_form, ClosedForm):
        raise ValueError(f"{name!r} must have a ClosedForm, got {type(form).__name__}")
    if not isinstance(slices := algorithm.slices, int) or slices < 1:
        raise ValueError(f"{name!r} must have at least one slice, got {slices!r}")


def _checked(part: Any, file: Path) -> Any:
    """Return an algorithm, or a closed form, of a file with its functions checked."""
    functions = {key: getattr(part, key, None) for key in RETURNS}
    return replace(part, **{k: _positive(k, one, file) for k, one in functions.items() if one})


def _positive(key: str, function: Callable[..., Any], file: Path) -> Callable[..., Any]:
    """Return the function, which raises `InputError` unless its result is a positive number."""
    kind: Any = RETURNS[key]

    def checked(*arguments: Any) -> Any:
        number = function(*arguments)
        if not (isinstance(number, kind) and 0 < number < inf):
            what = f"{key} must return a positive {kind.__name__.lower()} number, got {number!r}"
            raise InputError(Problem(str(file), what, f"see {PAGE}"))
        return number

    return checked


def require_built_in(scenario: "Scenario", option: str = "--clock virtual") -> None:
    """Raise `InputError` for a case whose algorithm another machine does not have.

    Machines of this `option` get no plugins.
    """
    from traffic_gen.workloads.algorithms.collectives import BUILT_IN

    for case in scenario.cases:
        for named in case.task.collectives:
            if named not in BUILT_IN:
                what = f"{named[1]!r} is from a plugin, which {option} cannot load"
                raise InputError(Problem(case.where, what, f"leave out {option}"))
