"""Bridged frames stay out of the machine's iptables where br_netfilter is loaded, as by Docker."""

import pytest

from linux.network.namespaces import private_namespace
from model.fabric.build import build_topology
from model.fabric.spec import FabricKind
from testbed.fabric.links import BRIDGE_SETTINGS, open_links
from testbed.host.preflight import checks
from testbed.nodes.gpu_proxies import ProxyKind
from tests.unit.fabrics import spec

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untouched_machine")]


@pytest.fixture(autouse=True)
def br_netfilter() -> None:
    """Skip the test on a kernel without br_netfilter, whose bridges pass nothing anyway."""
    if not BRIDGE_SETTINGS.exists():
        pytest.skip("this kernel has no br_netfilter: `sudo modprobe br_netfilter`")


def settings() -> dict[str, str]:
    """What br_netfilter does with frames of bridges in the present network namespace."""
    return {
        setting.name: setting.read_text().strip()
        for setting in BRIDGE_SETTINGS.glob("bridge-nf-call-*")
    }


def test_bridges_of_a_fabric_pass_no_frame_to_iptables() -> None:
    """A fabric's links are opened in the namespace that its bridges will be in."""
    names = [f"bridge-nf-call-{tables}" for tables in ("arptables", "ip6tables", "iptables")]
    with private_namespace():
        assert settings() == dict.fromkeys(names, "1")  # in every new namespace
        with open_links({}, build_topology(spec(FabricKind.RAIL_ONLY, 2, 2))):
            assert settings() == dict.fromkeys(names, "0")


def test_doctor_says_that_it_is_loaded_and_does_no_harm() -> None:
    (check,) = [one for one in checks(ProxyKind.PROCESS) if one.name == "br_netfilter"]
    assert (check.ready, check.state) == (True, "loaded; switched off in Railbed's namespaces")
