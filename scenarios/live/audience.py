"""The page as the audience of a session: it sees faults and answers, and gives commands."""

from collections.abc import Callable, Sequence

from model.errors import RailbedError
from scenarios.interactive.commands import Commands
from scenarios.interactive.session import Session
from scenarios.live.feed import LiveFeed


class PageAudience:
    """Tells the page of a session, and executes what the page asks for."""

    def __init__(self, feed: LiveFeed) -> None:
        self._feed = feed

    def follow(self, session: Session, commands: Commands) -> None:
        """Show the fabric and its workloads, and begin to execute what the page asks for."""
        self._feed.show(session.fabric)
        workloads = list(commands.workloads)
        step = "The fabric is up, and takes commands from here and from its command line."
        self._feed.tell({"interactive": True, "workloads": workloads, "step": step})
        known: dict[str, Callable[[Sequence[str]], None]] = {
            "fault": commands.fault,
            "heal": commands.heal,
            "stop": commands.stop,
        }

        def execute(words: Sequence[str]) -> None:
            name, *rest = words
            try:
                if name == "run":
                    commands.run([*rest, "&"])
                else:
                    known[name](rest)
            except RailbedError as error:
                self.said(str(error))
            except Exception as error:
                self.said(f"{name}: {type(error).__name__}: {error}")
            self.changed(session)

        self._feed.answer(execute)

    def changed(self, session: Session) -> None:
        """Show what is broken."""
        self._feed.tell({"broken": {fault.target: fault.mode.value for fault in session.faults}})

    def said(self, text: str) -> None:
        """Show what a command has answered."""
        self._feed.tell({"said": text})
