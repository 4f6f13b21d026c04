"""The pictures of the page in `docs/`, drawn by a real browser: `make pictures`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect
from tests.browsers import chromium
from tests.demo.site import PATIENCE, serving

QUESTION = "Does the vector of a text depend on its neighbours?"


def draw(folder: Path) -> None:
    """Ask the handbook, and picture the answer in each theme."""
    with tempfile.TemporaryDirectory() as library, serving(Path(library) / "library", method=None) as site:
        site.client.post("/api/handbook").raise_for_status()
        site.settled()
        with chromium() as browser:
            for theme in ("light", "dark"):
                page = browser.new_page(viewport={"width": 1180, "height": 760}, color_scheme=theme)
                page.goto(f"{site.url}/?q={QUESTION}")
                expect(page.locator("#status")).to_contain_text("passages in", timeout=PATIENCE * 1000)
                page.screenshot(path=folder / f"page-{theme}.png")


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
