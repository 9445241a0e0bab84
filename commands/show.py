"""The command `show`."""

from commands.options import AsJson, RunName, Store
from commands.output import out, printed_whole, show_run
from results.store.runs import DEFAULT_STORE, find_run, read_result


def show(run_name: RunName, as_json: AsJson = False, store: Store = DEFAULT_STORE) -> None:
    """Show a stored run, or nothing of a damaged one."""
    run = find_run(store, run_name)
    with printed_whole(out, run):
        show_run(read_result(run), as_json)
