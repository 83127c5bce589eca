"""Debian's Chromium, driven by Playwright without a browser of Playwright's own, and axe-core from npm.

``.ci/install-services.sh`` installs the one, ``uv sync --group browser`` the driver, and ``npm ci`` in ``axe`` the
other.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from tests.browser.site import MASTER, Site

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

AXE = Path(__file__).parent / "axe" / "node_modules" / "axe-core" / "axe.min.js"
Scheme = Literal["light", "dark"]
PHONE = (360, 640)
DESKTOP = (1280, 900)
_WAIT_MS = 60_000
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


def missing() -> str:
    """What these tests need and this machine has not; empty: nothing."""
    if shutil.which("chromium") is None:
        return "needs Chromium: .ci/install-services.sh, or apt-get install chromium"
    if find_spec("playwright") is None:
        return "needs Playwright's driver: uv sync --locked --all-extras --group browser"
    return "" if AXE.is_file() else f"needs axe-core: npm ci --prefix {AXE.parents[2]}"


@contextmanager
def chromium() -> Iterator["Browser"]:
    """A browser without windows."""
    from playwright.sync_api import sync_playwright

    # As root, and in containers, Chromium's sandbox cannot be set up; it opens pages of ours alone.
    flags = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visitor:
    """Somebody who looks at pages. ``complaints`` are errors and warnings of the console, exceptions, requests to
    another host and answers that failed, but for that of the page itself (``opening``): its status is told."""

    page: "Page"
    site: Site
    complaints: list[str] = field(default_factory=list)
    opening: str = ""

    def watch(self) -> None:
        """Note from now on what a page complains of, and what it asks for."""
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        self.page.on("request", self._asked)

    def open(self, address: str) -> int:
        """Open a page below ``/ui``; its status."""
        self.complaints.clear()
        self.opening = f"{self.site.url}/ui{address}"
        answer = self.page.goto(self.opening, wait_until="load")
        assert answer is not None
        return answer.status

    def log_in(self, *, by_keyboard: bool = False) -> None:
        """Log in with the master key."""
        self.open("")
        if by_keyboard:
            self.page.locator("[name=key]:focus").wait_for()  # the browser gives it the focus behind the load
            self.page.keyboard.type(MASTER)
            self.page.keyboard.press("Enter")
        else:
            self.page.get_by_label("Master key").fill(MASTER)
            self.page.get_by_role("button", name="Log in").click()
        self.page.get_by_role("navigation", name="Pages").wait_for()
        self.complaints.clear()

    def unfold(self) -> None:
        """Open everything that is folded."""
        self.page.evaluate("() => document.querySelectorAll('details').forEach(one => { one.open = true; })")

    def violations(self) -> list[str]:
        """What axe finds against WCAG A and AA on the open page."""
        with suppress(Exception):
            self.page.wait_for_load_state("networkidle", timeout=500)
        self.page.evaluate(AXE.read_text("utf-8"))
        options = {"runOnly": {"type": "tag", "values": _RULES}, "preload": False, "resultTypes": ["violations"]}
        found: Any = self.page.evaluate("options => axe.run(document, options)", options)
        return [
            f"{one['id']} ({one['impact']}): {node['html'][:160]} {node.get('failureSummary', '')[:300]}"
            for one in found["violations"]
            for node in one["nodes"]
        ]

    def overhang(self) -> int:
        """By how many pixels the page is wider than its window."""
        wide: int = self.page.evaluate(
            "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return wide

    def _said(self, message: Any) -> None:
        is_own_status = message.location["url"] == self.opening and "Failed to load resource" in message.text
        if message.type in ("error", "warning") and not is_own_status:
            self.complaints.append(f"{message.type}: {message.text}")

    def _asked(self, request: Any) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.site.url).netloc:
            self.complaints.append(f"a request to {request.url}")


@contextmanager
def visitor(
    browser: "Browser", site: Site, *, scheme: Scheme = "light", size: tuple[int, int] = DESKTOP, scripts: bool = True
) -> Iterator[Visitor]:
    """Somebody new, who has not logged in yet."""
    context = browser.new_context(
        color_scheme=scheme,
        viewport={"width": size[0], "height": size[1]},
        java_script_enabled=scripts,
        reduced_motion="reduce",
    )
    context.set_default_timeout(_WAIT_MS)
    try:
        found = Visitor(context.new_page(), site)
        found.watch()
        yield found
    finally:
        context.close()
