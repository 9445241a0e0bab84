"""Error messages for a machine that is not ready."""

from pathlib import Path
from typing import NoReturn

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from model.errors import NotReady
from model.fabric.spec import Datapath
from testbed.host import preflight
from testbed.nodes.gpu_proxies import ProxyKind


def test_a_kernel_without_htb_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such_qdisc(_netlink: object) -> None:
        raise NetlinkError(2, "Specified qdisc kind is unknown")

    monkeypatch.setattr(preflight, "FEATURES", (("token buckets", "sch_htb", no_such_qdisc),))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(NotReady, match=r"buckets.*unknown.*modprobe sch_htb") as caught:
        preflight.require_ready(ProxyKind.PROCESS)
    assert caught.value.exit_code == 3


def test_everything_that_is_missing_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NotReady) as caught:
        preflight.require_ready(ProxyKind.PROCESS)
    said = str(caught.value).splitlines()
    assert said[0].startswith("root: no, user id 1000; run the command again with `sudo`")
    assert [line.split(":")[0] for line in said[1:]] == [f"tool {tool}" for tool in preflight.TOOLS]


@pytest.mark.parametrize("loaded", [True, False])
def test_a_loaded_br_netfilter_is_told(
    loaded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "bridge"
    if loaded:
        settings.mkdir()
    monkeypatch.setattr(preflight, "BRIDGE_SETTINGS", settings)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(preflight, "FEATURES", ())
    monkeypatch.setattr(preflight, "_attempt", lambda what, *_: preflight.Check(what, True, "yes"))
    said = [check.state for check in preflight.checks(ProxyKind.PROCESS) if "br_" in check.name]
    assert said == ["loaded; switched off in Railbed's namespaces"] * loaded


@pytest.mark.parametrize("default", Datapath)
def test_a_run_needs_the_tun_device_for_switches_in_user_space_alone(
    default: Datapath, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_tun() -> None:
        raise FileNotFoundError(2, "No such file or directory", "/dev/net/tun")

    monkeypatch.setenv("RAILBED_DATAPATH", default)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(preflight, "FEATURES", ())
    monkeypatch.setattr(preflight, "_try_shaping", lambda: None)
    monkeypatch.setattr(preflight, "open_tun", no_tun)
    needed, unneeded = preflight.checks(ProxyKind.PROCESS), preflight.unneeded_checks()
    in_kernel = default is Datapath.KERNEL
    (check,) = [one for one in (unneeded if in_kernel else needed) if "TUN" in one.name]
    assert str(check).endswith("'/dev/net/tun'; " + preflight._load("tun"))
    assert ("(needed for --datapath user-space)" in check.name) is in_kernel
    assert len([one for one in (*needed, *unneeded) if "TUN" in one.name]) == 1


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("veth pairs", "veth"),
        ("bridges", "bridge"),
        ("token buckets (HTB)", "sch_htb"),
        ("u32 classifier", "cls_u32"),
    ],
)
def test_each_missing_feature_of_the_kernel_has_a_sentence(name: str, module: str) -> None:
    def refused(_netlink: object) -> None:
        raise NetlinkError(95, "Operation not supported")

    check = preflight._feature(name, module, refused)
    assert str(check) == (
        f"kernel's {name}: refused by the kernel: Operation not supported; "
        f"load it with `sudo modprobe {module}`, "
        "or boot a kernel that has it"
    )


def test_an_engine_that_does_not_answer_has_one_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> NoReturn:
        raise NotReady("Docker Engine: no answer; start it with `sudo ./railbed doctor`")

    monkeypatch.delenv(preflight.CONTAINER_VARIABLE, raising=False)
    monkeypatch.setattr(preflight, "docker_client", refused)
    assert str(preflight._docker()).count("railbed doctor") == 1
