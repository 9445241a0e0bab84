"""Pages in headless Chromium, at the widths of a desktop and of a phone."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Page, sync_playwright

CHROMIUM = "/usr/bin/chromium"
WIDTHS = {"desktop": (1400, 950), "phone": (390, 844)}


@contextmanager
def opened(url: str, width: str, **settings: Any) -> Iterator[Page]:
    """Open a page at a width; it may complain of nothing, and ask nothing of anybody else."""
    size: Any = dict(zip(("width", "height"), WIDTHS[width], strict=True))
    complaints, requests = list[str](), list[str]()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport=size, **settings)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda sent: requests.append(sent.url))
        page.goto(url)
        yield page
        browser.close()
    assert complaints == []
    assert [asked for asked in requests if not asked.startswith(url)] == []
