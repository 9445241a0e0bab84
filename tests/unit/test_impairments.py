"""Link delay and loss: which links have them, and the error if the kernel lacks netem."""

import re
from collections.abc import Callable

import pytest

from commands.exec import execute
from commands.live import live
from commands.options import require_possible
from commands.up import up
from model.errors import InputError
from model.fabric.build import build_topology
from model.fabric.shaping import Impairment
from model.fabric.topology import LinkKind
from scenarios.library_files import LIBRARY
from scenarios.load import load
from testbed.fabric import queues
from testbed.fabric import shaping as impairments
from testbed.nodes.gpu_proxies import ProxyKind

QUICKSTART, USER_SPACE = LIBRARY / "quickstart.yaml", "fabric.datapath=user-space"
IMPAIRED = ["fabric.hb_delay=0.001", "fabric.nic_delay=0.005", "fabric.nic_loss=0.01"]


def test_links_of_the_network_have_those_of_nics() -> None:
    for spec in load(QUICKSTART, IMPAIRED).fabrics:
        found = {(link.kind, link.impairment) for link in build_topology(spec).links}
        nic = Impairment(0.005, 0.01)
        assert found - {(LinkKind.UPLINK, nic)} == {
            (LinkKind.HB, Impairment(0.001, 0.0)),
            (LinkKind.NIC, nic),
        }


def test_links_are_unimpaired_unless_asked() -> None:
    for spec in load(QUICKSTART).fabrics:
        assert not any(link.impairment for link in build_topology(spec).links)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("nic_delay=0.02", "must be at most 0.01, got 0.02"),
        ("hb_delay=-1", "must be at least 0, got -1"),
        ("nic_loss=0.5", "must be at most 0.02, got 0.5"),
    ],
)
def test_what_probes_would_take_for_a_failure_is_refused(override: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(QUICKSTART, [f"fabric.{override}"])


FAST = ["fabric.bandwidth_scale=2000", "fabric.grain=8"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["fabric.nic_delay=0.002", "fabric.kinds=rail-only"], None),
        (
            ["fabric.nic_delay=0.005", "fabric.kinds=rail-optimized"],
            "--set fabric.nic_delay: a round trip must need a send buffer of at most 212992 B, got "
            "1012000 B (use a shorter delay, or a bandwidth_scale of at least 9951)",
        ),
        (["fabric.nic_delay=0.005", "fabric.bandwidth_scale=9951"], None),
        (["fabric.nic_delay=0.005", "fabric.transport=roce"], None),
        (
            ["fabric.hb_delay=0.001", "fabric.transport=roce"],
            "--set fabric.hb_delay: a round trip must need a send buffer of at most 212992 B, got "
            "912000 B (use a shorter delay, or a bandwidth_scale of at least 8956)",
        ),
    ],
)
def test_a_delay_that_no_socket_bridges_is_refused(
    overrides: list[str], message: str | None
) -> None:
    given = [*FAST, *overrides, "fabric.domains=2", "fabric.domain_size=2"]
    if message is None:
        load(QUICKSTART, given)
        return
    with pytest.raises(InputError, match=re.escape(message)):
        load(QUICKSTART, given)


def test_a_queue_pair_waits_for_a_round_trip_over_all_links() -> None:
    links = ("d0g0, to: s1", "s1, to: s2", "s2, to: s3", "d1g0, to: s3")
    wires = ", ".join(f"{{from: {ends}, delay: 0.01}}" for ends in links)
    fabric = f"{{kinds: custom, domains: 2, domain_size: 1, platform: dgx-h100, links: [{wires}]}}"
    workloads = "[{collective: send-recv, algorithm: chain, size: 5 MB, size_scale: 1}]"
    chosen = ["fabric.transport=roce", "fabric.bandwidth_scale=20000"]
    plain, delayed = (
        load(QUICKSTART, [f"fabric={fabric}", f"workloads={workloads}", *chosen, *more]).fabrics[0]
        for more in (
            ["fabric.roce={window: 1000}"],
            ["fabric.roce={window: 1000}", "fabric.nic_delay=0.01"],
        )
    )
    assert plain.longest_delay_s == pytest.approx(0.04)
    added_s = delayed.retransmission_timeout_s - plain.retransmission_timeout_s
    assert added_s == pytest.approx(2 * 0.04)


@pytest.fixture
def without_netem(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be root, who alone can probe the kernel; the kernel has no netem."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(impairments, "missing_netem", lambda: "no netem here")


@pytest.mark.usefixtures("without_netem")
def test_a_kernel_without_netem_is_told() -> None:
    require_possible(load(QUICKSTART))
    with pytest.raises(InputError, match=r"^--set fabric.hb_delay: no netem here"):
        require_possible(load(QUICKSTART, IMPAIRED))


def test_a_kernel_without_red_is_told_of_marks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(queues, "missing_red", lambda: "no RED here")
    require_possible(load(QUICKSTART, ["fabric.switch_queue={buffer: 1 MB}", USER_SPACE]))
    with pytest.raises(InputError, match=r"^--set fabric.switch_queue: no RED here"):
        require_possible(load(QUICKSTART, ["fabric.switch_queue={ecn: true}", USER_SPACE]))


@pytest.mark.parametrize(
    ("queue", "message"),
    [
        ("{buffer: 2 kB}", "buffer: must be at least 12112 B, the longest segment of TCP"),
        ("{ecn: true, kmin: 200 kB}", "kmin: must be less than kmax, 200000 B, got 200000 B"),
        (
            "{ecn: true, buffer: 20 kB, kmin: 20 kB}",
            "kmin: must be less than buffer, 20000 B, got 20000 B: no packet is marked",
        ),
        ("{buffer: 2}", "needs a unit"),
        ("{buffer: 2 GiB}", "buffer: must be at most 2147483647, got '2 GiB'"),
        ("{ecn: true, kmax: 5 GB}", "kmax: must be at most 2147483647, got '5 GB'"),
    ],
)
def test_a_queue_that_nothing_passes_or_no_kernel_has_is_refused(queue: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(QUICKSTART, [f"fabric.switch_queue={queue}", "fabric.grain=8"])


@pytest.mark.parametrize("key", ["kmin: 1 kB", "kmax: 300 kB", "pmax: 0.1"])
def test_keys_of_marks_without_marks_are_refused(key: str) -> None:
    load(QUICKSTART, [f"fabric.switch_queue={{ecn: true, {key}}}"])
    for ecn in ("", "ecn: false, "):
        with pytest.raises(InputError, match=f"{key[:4]}: needs ecn: true \\(add it, or leave"):
            load(QUICKSTART, [f"fabric.switch_queue={{{ecn}{key}}}"])


def test_a_queue_behind_the_kernels_datapath_needs_netem(monkeypatch: pytest.MonkeyPatch) -> None:
    """There, a packet in a switch's queue would fill its sender's buffer."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(impairments, "missing_netem", lambda: "no netem here")
    monkeypatch.setattr("commands.options.require_datapaths", lambda _: None)
    queue = "fabric.switch_queue={buffer: 1 MB}"
    require_possible(load(QUICKSTART, [queue, USER_SPACE]))
    with pytest.raises(InputError, match=r"^--set fabric.switch_queue: no netem here"):
        require_possible(load(QUICKSTART, [queue, "fabric.datapath=kernel"]))


def test_dcqcn_without_marks_is_refused() -> None:
    roce = ["fabric.transport=roce", "fabric.roce={congestion: dcqcn}"]
    load(QUICKSTART, [*roce, "fabric.switch_queue={ecn: true}"])
    for queue in ([], ["fabric.switch_queue={buffer: 1 MB}"]):
        with pytest.raises(InputError, match="dcqcn needs ECN marks, which no switch sets"):
            load(QUICKSTART, [*roce, *queue])


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("timeout=22", "timeout: is 3.44e\\+05 s, .*use at most 20"),
        (f"window={2**23 + 1}", "window: must be at most 8388608"),
    ],
)
def test_queue_pairs_beyond_a_day_or_half_of_their_numbers_are_refused(
    key: str, message: str
) -> None:
    roce = ["fabric.transport=roce", f"fabric.roce.{key}"]
    with pytest.raises(InputError, match=message):
        load(QUICKSTART, [*roce, "fabric.bandwidth_scale=20000"])


@pytest.mark.usefixtures("without_netem")
@pytest.mark.parametrize(
    "command",
    [
        lambda: up(QUICKSTART, overrides=IMPAIRED),
        lambda: live(QUICKSTART, overrides=IMPAIRED),
        lambda: execute(QUICKSTART, ["true"], overrides=IMPAIRED),
    ],
    ids=["up", "live", "exec"],
)
def test_it_is_told_before_a_fabric_comes_up(
    command: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def comes_up(*_: object) -> None:
        pytest.fail("it must not come up")

    monkeypatch.setattr("commands.options.ready", lambda *_: ProxyKind.PROCESS)
    monkeypatch.setattr("execution.cases.emulation.experiment", comes_up)
    with pytest.raises(InputError, match=r"^--set fabric.hb_delay: no netem here"):
        command()
