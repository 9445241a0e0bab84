"""The page of the live view in Chromium, without a fabric: `docs/guides/extending.md` says how."""

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Page, expect

from execution.live.feed import LOOPBACK_NAMES, picture
from execution.live.server import LiveServer
from model.fabric.build import build_topology
from model.fabric.spec import FabricKind
from model.fabric.topology import Topology
from tests.browser.chromium import WIDTHS, opened
from tests.machine import wait_until
from tests.unit.fabrics import spec

LARGE = spec(FabricKind.RAIL_ONLY, 32, 8)
# The least height of a name's letters on the screen.
SMALLEST_PX = 8
# The boxes of all nodes beside each other, the width of the picture, the height of the letters.
BOXES = """picture => {
  const frame = picture.getBoundingClientRect();
  const boxes = [...picture.querySelectorAll('.node rect')].map(node => {
    const {left, right, top, bottom} = node.getBoundingClientRect();
    return {left: left - frame.left, right: right - frame.left, top, bottom};
  });
  const names = [...picture.querySelectorAll('.node text')];
  const letters = Math.min(...names.map(name => name.getBoundingClientRect().height));
  return {boxes, width: frame.width, letters};
}"""
BUSY, FAILED, QUEUED_BYTES = "d1g0--rail0", "d0g0--rail0", 90_000


class Recording(LiveServer):
    """Keeps what the page asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[str]] = []

    def send_to_run(self, words: list[str]) -> None:
        self.asked.append(words)


class Served:
    """A live server with a fabric that a test makes up, in a thread of its own."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.loop = asyncio.new_event_loop()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/token/"
        self.live = Recording()
        self.live.page.show(picture(topology))
        app = self.live.app("token", LOOPBACK_NAMES)
        settings: Any = {"log_config": None, "lifespan": "off", "ws": "none"}
        self._web = uvicorn.Server(uvicorn.Config(app, timeout_graceful_shutdown=1, **settings))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._web.serve(sockets=[self._listening]))

    def stop(self) -> None:
        self._web.should_exit = True
        self._thread.join()
        self._listening.close()
        self.loop.close()

    def note(self, **changes: Any) -> None:
        self.loop.call_soon_threadsafe(self.live.page.note, changes)
        self._wake()

    def take_down(self) -> None:
        """Show no fabric any more."""
        self.live.present = None
        self.loop.call_soon_threadsafe(self.live.page.show, None)
        self._wake()

    def frame(self, carried: int = 10**6) -> None:
        """Show one busy link, with a queue at its lower end."""
        number = [link.name for link in self.topology.links].index(BUSY)
        use, queued = [0] * (2 * len(self.topology.links)), [0] * (2 * len(self.topology.links))
        use[2 * number], queued[2 * number] = 970, QUEUED_BYTES
        self.live.present = {
            **{"use": use, "queued": queued, "carried": carried, "bps": 19_400_000},
            **{"idle": 0.1, "stolen": 0.0, "dropped": 0, "light": "warn", "page_cpu": 0.02},
        }
        self._wake()

    def _wake(self) -> None:
        asyncio.run_coroutine_threadsafe(self.live.wake(), self.loop)


@pytest.fixture
def served() -> Iterator[Served]:
    found = Served(build_topology(spec(FabricKind.RAIL_OPTIMIZED, 4, 4, spines=4)))
    yield found
    found.stop()


@pytest.fixture(params=WIDTHS)
def two_ports(request: pytest.FixtureRequest) -> Iterator[tuple[Page, Topology]]:
    """The page of a fabric whose NICs have two ports, at a width."""
    plain = spec(FabricKind.RAIL_OPTIMIZED, 4, 4, spines=4)
    found = Served(build_topology(replace(plain, nic=replace(plain.nic, ports=2))))
    with opened(found.url, request.param) as page:
        yield page, found.topology
    found.stop()


@pytest.fixture(params=WIDTHS)
def page(request: pytest.FixtureRequest, served: Served) -> Iterator[Page]:
    """The page at a width."""
    with opened(served.url, request.param) as page:
        yield page


def cable(page: Page, name: str) -> Any:
    return page.locator(f'.cable[data-name="{name}"]')


def test_the_picture_shows_what_the_data_says(page: Page, served: Served, tmp_path: Path) -> None:
    served.frame()
    served.note(failed=[FAILED], executions=36, done=11, step="all-to-all/two-step")
    served.note(verdict={"case": "rail-only/all-to-all/direct", "verdict": "warn", "ratio": 1.021})
    served.note(verdict={"case": "nic-link-flaps", "verdict": "pass", "ratio": None})
    page.wait_for_selector(".cable.failed")
    page.wait_for_selector(".use.u5")
    assert page.locator(".cable").count() == len(served.topology.links)
    assert page.locator(".node").count() == 4 * 4 + 4 + 4 + 4
    assert page.locator(".use.u5").count() == 1
    assert cable(page, BUSY).locator(".use.u5").count() == 1
    assert float(cable(page, BUSY).locator("circle").first.get_attribute("r") or 0) > 0
    assert "failed" in (cable(page, FAILED).get_attribute("class") or "")
    busiest = page.locator("#busiest td").all_inner_texts()
    assert busiest == ["d1g0 → rail0", "97%", "19.4", "90 kB"]
    assert page.locator("#cpu").inner_text().endswith("cores 90% busy")
    verdicts = page.locator("#verdicts li").all_inner_texts()
    assert verdicts == ["rail-only/all-to-all/direct: ratio 1.0210", "nic-link-flaps"]
    assert page.locator("#count").inner_text() == "11 of 36 executions"
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.screenshot(path=str(tmp_path / "page.png"), full_page=True)


def test_both_ports_of_a_nic_have_cables_of_their_own(two_ports: tuple[Page, Topology]) -> None:
    page, topology = two_ports
    page.wait_for_selector(".cable")
    lines = page.locator(".cable .hit").evaluate_all("all => all.map(l => l.getAttribute('d'))")
    assert len(set(lines)) == len(lines) == len(topology.links)
    nodes = page.locator(".node rect").evaluate_all(
        "all => all.map(box => box.getAttribute('x') + ' ' + box.getAttribute('y'))"
    )
    assert len(set(nodes)) == len(nodes)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.fixture(
    params=[spec(FabricKind.RAIL_OPTIMIZED, 2, 2, spines=12), LARGE], ids=["spines", "domains"]
)
def large(request: pytest.FixtureRequest) -> Iterator[Page]:
    """The page of a fabric with many spines, or with many domains."""
    found = Served(build_topology(request.param))
    with opened(found.url, "desktop") as page:
        yield page
    found.stop()


def test_a_large_fabric_is_legible(large: Page) -> None:
    large.wait_for_selector(".cable")
    drawn = large.locator("#picture").evaluate(BOXES)
    boxes, width = drawn["boxes"], drawn["width"]
    for one, other in combinations(boxes, 2):
        beside = one["right"] <= other["left"] or other["right"] <= one["left"]
        assert beside or one["bottom"] <= other["top"] or other["bottom"] <= one["top"]
    assert all(box["left"] >= 0 and box["right"] <= width for box in boxes)
    assert drawn["letters"] >= SMALLEST_PX
    assert large.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_click_breaks_and_heals(page: Page, served: Served) -> None:
    served.note(interactive=True, workloads=["all-to-all/direct"])
    page.get_by_role("button", name="Run all-to-all/direct").click()
    page.get_by_role("button", name="spine0", exact=True).click()
    page.get_by_role("button", name="Break: kill").click()
    page.get_by_role("button", name=FAILED, exact=True).focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Break: down").click()
    wait_until(lambda: len(served.live.asked) == 3, "three commands arrive")
    served.note(broken={FAILED: "down"}, said="Blackout: 14 ms")
    page.get_by_role("button", name=f"Heal {FAILED}").click()
    wait_until(lambda: len(served.live.asked) == 4, "the fourth command arrives")
    assert page.locator("#said").inner_text() == "Blackout: 14 ms"
    assert served.live.asked == [
        ["run", "all-to-all/direct"],
        ["fault", "spine0", "kill"],
        ["fault", FAILED, "down"],
        ["heal", FAILED],
    ]


def test_a_degraded_link_is_used_at_the_rate_that_is_left(page: Page, served: Served) -> None:
    served.note(interactive=True, broken={BUSY: "degrade"}, degraded={BUSY: 5_000_000})
    served.frame()
    page.get_by_role("button", name=f"Heal {BUSY}").wait_for()
    page.wait_for_selector(".use.u5")
    assert "failed" not in (cable(page, BUSY).get_attribute("class") or "")
    assert cable(page, BUSY).locator("title").text_content() == f"{BUSY}, 5 Mbit/s"
    assert page.locator("#busiest td").all_inner_texts()[1:3] == ["97%", "4.8"]
    served.note(failed=[BUSY])  # drained
    page.wait_for_selector(".cable.failed")


def counted(page: Page, step: str, done: int) -> None:
    """Wait until the page has a frame after this state."""
    expression = f"counted?.step === '{step}' && counted.done === {done}"
    wait_until(lambda: bool(page.evaluate(expression)), expression)


def test_a_share_is_of_an_execution_of_the_same_case(page: Page, served: Served) -> None:
    carried, share = 0, page.locator("#within-text")
    served.frame(carried)
    counted(page, "", 0)
    for before, step, size in ((0, "all-reduce/ring", 4000), (2, "all-to-all/direct", 1000)):
        served.note(step=step, executions=4)
        counted(page, step, before)
        expect(page.locator("#within")).to_be_hidden()
        expect(share).to_have_text("")
        carried += size
        served.frame(carried)
        served.note(done=before + 1)
        counted(page, step, before + 1)
        served.frame(carried + size // 2)
        expect(share).to_have_text("50% of this execution")
        carried += size
        served.frame(carried)
        served.note(done=before + 2)
        counted(page, step, before + 2)


def test_nothing_stays_of_a_fabric_that_is_down(page: Page, served: Served) -> None:
    for done, carried in enumerate((0, 1000, 2000)):
        served.note(step="all-reduce/ring", executions=4, done=done)
        served.frame(carried)
        counted(page, "all-reduce/ring", done)
    expect(page.locator("#within")).to_be_visible()
    served.take_down()
    page.get_by_text("No fabric is up.").wait_for()
    expect(page.locator("#within")).to_be_hidden()
    assert page.locator("#within-text").inner_text() == ""
    assert page.locator("#busiest").inner_text() == ""
    assert page.locator("#lights").inner_text() == ""


def test_without_scripts_the_page_says_what_it_needs(served: Served) -> None:
    with opened(served.url, "desktop", java_script_enabled=False) as page:
        # Playwright's setting runs no script, but does not show this element.
        assert page.locator("noscript").text_content() == "This page needs JavaScript."


def test_the_journal_counts_from_its_first_event(page: Page, served: Served) -> None:
    served.note(journal=[{"ns": 6 * 10**9, "text": "confirmed"}], journal_begun_ns=10**9)
    expect(page.locator("#journal span").first).to_have_text("5.000 s")


def test_the_end_of_the_run_is_said(page: Page, served: Served) -> None:
    served.note(ended=True)
    page.get_by_text("The run has ended.").wait_for()
    assert page.evaluate("events.readyState === EventSource.CLOSED")
    assert page.locator("#link").is_hidden()


def test_a_fault_shows_the_blackout_of_each_pair(
    page: Page, served: Served, tmp_path: Path
) -> None:
    assert page.locator("#dark").is_hidden()
    spans = [["d0g0>d1g0", -0.4, 13.6], ["d2g0>d0g0", 0.1, 5.1], ["d0g1>d3g1", None, None]]
    fault = {"fault": f"{FAILED} down", "detected_ms": 2.1, "confirmed_ms": 9.4, "pairs": spans}
    unseen = [["d0g0>d1g0", 1.0, None]]
    never = {**fault, "fault": "rail1 kill", "pairs": unseen, "blackout_ms": None, "probed": True}
    alone = {**never, "fault": "d3g3 kill", "pairs": [], "probed": False}
    served.note(interactive=True, broken={FAILED: "down"})
    for one in (alone, never, {**fault, "blackout_ms": 14.0, "probed": True}):
        served.note(blackout=one)
    expect(page.locator("#blackouts figure")).to_have_count(3)
    told = page.locator("#blackouts figcaption").all_inner_texts()
    assert told == [
        f"{FAILED} down: 14 ms; detected after 2 ms, new paths after 9 ms",
        "rail1 kill: a pair was not reached again; detected after 2 ms, new paths after 9 ms",
        "d3g3 kill: no affected pair has another path; detected after 2 ms, new paths after 9 ms",
    ]
    drawn = page.locator("#blackouts figure").first
    assert drawn.locator("text").all_text_contents()[:3] == [
        "d0g0 → d1g0",
        "d2g0 → d0g0",
        "d0g1 → d3g1",
    ]
    widths = [float(bar.get_attribute("width") or 0) for bar in drawn.locator(".lost").all()]
    assert len(widths) == 2
    assert widths[0] / widths[1] == pytest.approx(14.0 / 5.0, rel=0.01)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.screenshot(path=str(tmp_path / "blackout.png"), full_page=True)


def test_names_are_text_and_nothing_else(page: Page, served: Served) -> None:
    wicked = "<img src=x onerror=alert(1)>"
    served.note(interactive=True, workloads=[wicked], said=wicked, step=wicked)
    page.get_by_role("button", name=f"Run {wicked}").wait_for()
    assert page.locator("img").count() == 0
    assert page.locator("#step").inner_text() == wicked


def test_a_run_shows_no_fault_buttons(page: Page, served: Served) -> None:
    served.note(step="all-reduce/hierarchical")
    expect(page.locator("#step")).to_have_text(re.compile("^all-reduce"))
    assert page.locator("#control").is_hidden()
    cable(page, BUSY).dispatch_event("click")
    assert page.locator("#menu").is_hidden()
