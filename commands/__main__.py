"""`python -m commands`: the command line, as the `railbed` script starts it."""

import gc
import signal

# Until the command begins: imports leave no garbage, and the search for it takes a tenth of them.
gc.disable()
# Until the command listens to signals there is nothing to take down: Ctrl-C ends it at once.
signal.signal(signal.SIGINT, signal.SIG_DFL)

from commands.app import main  # noqa: E402
from linux.machine.processor import speed_up_large_arrays  # noqa: E402
from linux.processes.interruptions import repeat_swallowed  # noqa: E402

if __name__ == "__main__":
    repeat_swallowed()
    speed_up_large_arrays()
    main()
