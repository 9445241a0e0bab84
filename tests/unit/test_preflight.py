"""What is said of a machine that is not ready."""

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from model.errors import NotReady
from testbed import preflight
from testbed.proxies import ProxyKind


def test_a_kernel_without_htb_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such_qdisc() -> None:
        raise NetlinkError(2, "Specified qdisc kind is unknown")

    monkeypatch.setattr(preflight, "_try_shaping", no_such_qdisc)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(NotReady, match=r"HTB.*unknown.*modprobe -a sch_htb cls_u32") as caught:
        preflight.require_ready(ProxyKind.PROCESS)
    assert caught.value.exit_code == 3


def test_everything_that_is_missing_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NotReady) as caught:
        preflight.require_ready(ProxyKind.PROCESS)
    said = str(caught.value).splitlines()
    assert said[0] == "root: no, user id 1000; run the command again with `sudo`"
    assert [line.split(":")[0] for line in said[1:]] == [f"tool {tool}" for tool in preflight.TOOLS]
