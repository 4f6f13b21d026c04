"""The pictures of the page in `docs/`, drawn by a real browser: `make pictures`."""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect
from reportlab.pdfgen.canvas import Canvas
from tests.browsers import chromium
from tests.demo.site import PATIENCE, serving

QUESTION = "When do passengers get their money back?"
GUIDE = (
    "The ferry to the island leaves the north pier every morning at half past eight and comes back at six.",
    "In winter, from November to March, it sails on Saturdays only. Tickets are sold on board;",
    "children under twelve and dogs travel free of charge.",
    "When waves are higher than two metres, the captain stays in the harbour,",
    "and passengers get their money back.",
)


def draw(folder: Path) -> None:
    """Ask a PDF file, and picture its page with the marked sentence in each theme."""
    file = io.BytesIO()
    canvas = Canvas(file, pagesize=(620, 190))
    for at, line in enumerate(GUIDE):
        canvas.drawString(40, 140 - 18 * at, line)
    canvas.save()
    with tempfile.TemporaryDirectory() as library, serving(Path(library) / "library", method=None) as site:
        site.upload("guide.pdf", file.getvalue())
        site.settled()
        with chromium() as browser:
            for theme in ("light", "dark"):
                page = browser.new_page(viewport={"width": 1180, "height": 760}, color_scheme=theme)
                page.goto(f"{site.url}/?q={QUESTION}")
                page.locator(".show-page").first.click()
                expect(page.locator(".original img")).to_be_visible(timeout=PATIENCE * 1000)
                page.screenshot(path=folder / f"page-{theme}.png")


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
