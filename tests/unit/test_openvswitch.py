"""Commands to Open vSwitch that would stop all other switches if given in another way."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from linux.processes.lifetime import Watch
from model.fabric.spec import Datapath
from testbed.nodes import openvswitch
from testbed.nodes.openvswitch import OpenVSwitch


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done: the first word of each command, and borrowed sockets."""
    found: list[str] = []

    @contextmanager
    def closing_together(process_id: int) -> Iterator[None]:
        found.append(f"sockets of {process_id} borrowed")
        yield
        found.append("sockets closed")

    def command(_self: OpenVSwitch, *words: str) -> str:
        found.append(" ".join(words))
        return ""

    monkeypatch.setattr(openvswitch, "closing_together", closing_together)
    monkeypatch.setattr(OpenVSwitch, "command", command)
    return found


@pytest.fixture
def switch(tmp_path: Path) -> OpenVSwitch:
    return OpenVSwitch(tmp_path, Datapath.USER_SPACE, Watch(), process_id=7)


def test_moved_ports_are_closed_together(switch: OpenVSwitch, done: list[str]) -> None:
    switch.move_ports(["to-d0g0", "to-d1g0"], [("rail2", 1, "to-d0g0")])
    assert done[:3] == [
        "sockets of 7 borrowed",
        "del-port to-d0g0 -- del-port to-d1g0",
        "sockets closed",
    ]
    assert [words.split()[0] for words in done[3:]] == ["add-port"]


def test_where_no_port_moves_no_command_is_given(switch: OpenVSwitch, done: list[str]) -> None:
    switch.move_ports([], [])
    assert done == []


def test_a_switch_that_restarts_loses_its_rules_while_no_controller_can_add_any(
    switch: OpenVSwitch, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def output_of(*words: str, check: Callable[[], None]) -> None:
        done.append(" ".join(words[2:]))

    monkeypatch.setattr(openvswitch, "output_of", output_of)
    switch.restart("rail0")
    management = f"unix:{switch.folder}/rail0.mgmt"
    assert done == [
        'set controller rail0 target="unix:nobody"',
        f"del-groups {management}",
        f"del-flows {management}",
        'set controller rail0 target="tcp:127.0.0.1:6653"',
    ]
