"""The pictures of the page in `docs/`, drawn by a real browser: `make pictures`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect, sync_playwright
from tests.demo.site import PATIENCE, serving
from tests.demo.test_web_browser import FLAGS, chromium

QUESTION = "Does the vector of a text depend on its neighbours?"


def draw(folder: Path) -> None:
    """Ask the handbook, and picture the answer in each theme."""
    with tempfile.TemporaryDirectory() as library, serving(Path(library) / "library", method=None) as site:
        site.client.post("/api/handbook").raise_for_status()
        site.settled()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=[*FLAGS, "--no-sandbox"])
            for theme in ("light", "dark"):
                page = browser.new_page(viewport={"width": 1180, "height": 760}, color_scheme=theme)
                page.goto(f"{site.url}/?q={QUESTION}")
                expect(page.locator("#status")).to_contain_text("passages in", timeout=PATIENCE * 1000)
                page.screenshot(path=folder / f"page-{theme}.png")
            browser.close()


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
