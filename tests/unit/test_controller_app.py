"""What switches tell the controller's application: connections, states in parts, ports, errors."""

import warnings
from threading import Event
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

# Eventlet and Ryu are old; eventlet would warn at each fork of other tests.
with warnings.catch_warnings(), patch("os.register_at_fork"):
    warnings.simplefilter("ignore")
    import eventlet.wsgi

    eventlet.wsgi.ALREADY_HANDLED = None
    from ryu.ofproto import ofproto_v1_3 as protocol

    from controller.app import RailbedController

from controller.detection.fabric_state import ObservedFabric
from controller.southbound.openflow import addition
from model.fabric.build import build_topology
from model.fabric.spec import FabricKind
from tests.unit.fabrics import desired_state, spec
from tests.unit.test_controller_openflow import DATAPATH, GENERATION, table

TOPOLOGY = build_topology(spec(FabricKind.RAIL_ONLY, 2, 2))
RAIL1 = 2  # the number of its datapath


def controller() -> Any:
    """An application without tasks and sockets."""
    app = RailbedController.__new__(RailbedController)
    app.names, app.switches, app.connected = TOPOLOGY.openflow_switches, {}, Event()
    app.reconciler, app.journal, app.fabric = MagicMock(), MagicMock(), ObservedFabric(TOPOLOGY)
    return app


def event(datapath: Any, **fields: Any) -> Any:
    return SimpleNamespace(datapath=datapath, msg=SimpleNamespace(datapath=datapath, **fields))


def connection() -> Any:
    return MagicMock(id=RAIL1, ofproto=protocol)


def test_a_switch_has_reported_once_all_parts_of_all_replies_have_come() -> None:
    app, datapath = controller(), connection()
    app.on_connected(event(datapath))
    assert app.connected.is_set()
    assert datapath.send_msg.call_count == 3
    session, rules = app.switches["rail1"], desired_state(TOPOLOGY).rules["rail1"]
    parts = [table(addition(DATAPATH, rule, GENERATION)).reply() for rule in rules]
    replies: tuple[tuple[Any, list[Any]], ...] = (
        (app.on_ports, [[]]),
        (app.on_groups, [[]]),
        (app.on_rules, parts),
    )
    for number, (handler, bodies) in enumerate(replies):
        for left, body in reversed(list(enumerate(bodies))):
            assert len(session.unreported) == len(replies) - number
            flags = protocol.OFPMPF_REPLY_MORE if left else 0
            handler(event(datapath, body=body, flags=flags))
    assert not session.unreported
    assert session.rules == rules
    name, generations = app.reconciler.reported.call_args.args
    assert (name, set(generations)) == ("rail1", {GENERATION})


def test_the_end_of_an_earlier_connection_ends_no_later_one() -> None:
    app, first, second = controller(), connection(), connection()
    for datapath in (first, second):
        app.on_connected(event(datapath))
    session = app.switches["rail1"]
    app.on_disconnected(event(first))
    assert (app.switches, session.done.is_set()) == ({"rail1": session}, False)
    app.on_disconnected(event(second))
    assert (app.switches, session.done.is_set()) == ({}, True)
    app.reconciler.disconnected.assert_called_once_with("rail1")


def test_a_port_that_is_down_or_gone_has_lost_its_link() -> None:
    link, (kept, gone) = (
        TOPOLOGY.links_of("rail1")[0],
        (protocol.OFPPR_MODIFY, protocol.OFPPR_DELETE),
    )
    name, number = link.upper.interface.encode(), link.upper.number
    for reason, state, lost in ((kept, 0, 0), (kept, protocol.OFPPS_LINK_DOWN, 1), (gone, 0, 1)):
        app = controller()
        port = SimpleNamespace(name=name, port_no=number, config=0, state=state)
        app.on_port(event(connection(), reason=reason, desc=port))
        facts = [{"link": link.name, "failed": "carrier"}] * lost
        app.reconciler.note.assert_called_once_with(facts)


def test_a_refused_message_ends_the_controller() -> None:
    """Ryu goes on after an exception of a handler, with a wrong state."""
    app = controller()
    app.on_refused(event(connection(), type=5, code=1))
    app.journal.end_with_error.assert_called_once_with("on_refused")
