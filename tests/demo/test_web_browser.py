"""The page in a real browser: what a reader does, sees and can reach without a mouse.

`make test-browser` runs these; they need Debian's `chromium`, or another that CHROMIUM names.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from tests.demo.site import PATIENCE, Site, long_text, serving

from eddy_demo import handbook
from eddy_demo.web import generating

pytestmark = pytest.mark.browser
QUESTION = "What happens to a document that is longer than the model's window?"
FLAGS = (
    "--disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --disable-dev-shm-usage"
).split()
HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script> The ferry leaves at noon.'
expect.set_options(timeout=PATIENCE * 1000)


def chromium() -> str:
    """Where the browser is; without one the tests fail, and say what to install."""
    named = os.environ.get("CHROMIUM")
    found = named or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.fail(
            "no Chromium found: install it (Debian and Ubuntu: sudo apt-get install chromium), or set CHROMIUM to the "
            "path of one; `make test` runs everything else",
            pytrace=False,
        )
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # As root there is no sandbox to be had.
    flags = [*FLAGS, *(["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=flags)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A library of part of the handbook and one hostile document, whose model writes a few words of each answer."""
    folder = tmp_path_factory.mktemp("web") / "library"
    with pytest.MonkeyPatch.context() as patch, serving(folder, method=None, generate=True) as site:
        patch.setattr(generating, "MOST_TOKENS", 8)
        for name in ("long-documents.md", "files.md", "layers.md", "chroma.md", "methods.md"):
            site.upload(name, (handbook.folder() / name).read_bytes())
        site.upload('"><script>alert(3).txt', HOSTILE.encode())
        site.settled()
        yield site


Visit = Callable[..., Page]


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Opens pages; whatever a page's script complains of, and any dialog, fails the test."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def opened(url: str, **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        context.set_default_timeout(PATIENCE * 1000)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("console", lambda told: complaints.append(told.text) if _bad(told.type, told.text) else None)
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def _bad(kind: str, text: str) -> bool:
    # That the server is gone for a moment, or refuses a file, is what some tests are about.
    expected = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED", "status of 415")
    return kind == "error" and not any(each in text for each in expected)


def in_view(page: Page, selector: str) -> bool:
    box = page.locator(selector).first.bounding_box()
    size = page.viewport_size
    assert box is not None and size is not None
    return bool(0 <= box["y"] and box["y"] + min(box["height"], 40) <= size["height"])


def test_upload_progress_ask_click(tmp_path: Path, visit: Visit) -> None:
    """From an empty library to the sentence that answers, in view and marked; the address alone leads there again."""
    text = f"{long_text(150)}\n\nThe ferry to the northern island leaves at noon.\n\n{long_text(150, seed=1)}"
    (tmp_path / "guide.txt").write_text(text, encoding="utf-8")
    (tmp_path / "tides.md").write_text("# Tides\n\nThe moon pulls the water of the sea.\n", encoding="utf-8")
    with serving(tmp_path / "library", paused=True, method=None) as site:
        page = visit(f"{site.url}/")
        expect(page.get_by_role("heading", name="Nothing to ask yet")).to_be_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("g")
        page.keyboard.press("l")
        page.wait_for_url("**/library")
        page.locator("#files").set_input_files([tmp_path / "guide.txt", tmp_path / "tides.md"])
        job = page.locator(".job", has_text="guide.txt")
        for _ in range(2):
            expect(job.locator(".now")).to_have_text("embedding")
            expect(job.locator("progress")).not_to_have_js_property("value", 0)
            expect(job).to_contain_text("left")
            page.reload()  # in the midst of it
        site.resume()
        expect(page.locator(".document-row")).to_have_count(2)
        expect(page.locator(".job.done")).to_have_count(2)
        page.keyboard.press("g")
        page.keyboard.press("a")
        page.wait_for_url(f"{site.url}/")
        page.keyboard.press("/")
        page.keyboard.type("When does the ferry to the northern island leave?")
        page.keyboard.press("Enter")
        marked = "The ferry to the northern island leaves at noon."
        hit = page.locator(".hit", has=page.locator("mark", has_text=marked))
        expect(hit).to_have_count(1)
        expect(page.locator("#answer .quote").first).to_contain_text(marked)
        hit.locator(".name").click()
        page.wait_for_url("**/documents/**")
        expect(page.locator(".s.here")).to_have_text(marked)
        page.wait_for_timeout(200)
        assert in_view(page, ".s.here")
        start, end = map(int, page.url.rsplit("-", 2)[1:])
        assert text[start:end] == marked
        again = visit(page.url.split("?")[0] + "#" + page.url.split("#")[1])
        expect(again.locator(".s.here")).to_have_text(marked)
        again.wait_for_timeout(200)
        assert in_view(again, ".s.here")


def test_the_page_goes_on_when_the_server_is_back(tmp_path: Path, visit: Visit) -> None:
    """The server ends while it embeds; the page that stayed open sees the next one finish, and may delete."""
    with serving(tmp_path / "library", paused=True) as site:
        page = visit(f"{site.url}/library")
        site.upload("guide.txt", long_text(250).encode())
        expect(page.locator(".job .now")).to_have_text("embedding")
        expect(page.locator(".job progress")).not_to_have_js_property("value", 0)
        port = int(site.url.rsplit(":", 1)[1])
    expect(page.locator("#banner")).to_contain_text("The server does not answer.")
    with serving(tmp_path / "library", port=port):
        expect(page.locator(".document-row")).to_have_count(1)
        expect(page.locator("#banner")).to_be_hidden()
        page.get_by_role("button", name="Delete guide.txt").click()
        page.get_by_role("button", name="Delete", exact=True).click()
        expect(page.locator("#none")).to_be_visible()


def test_hostile_content_is_only_text(site: Site, visit: Visit) -> None:
    page = visit(f"{site.url}/library")
    expect(page.locator(".document-row", has_text='"><script>alert(3).txt')).to_be_visible()
    expect(page.locator(".job.done")).to_have_count(5)
    expect(page.locator(".job.more")).to_have_text("and 1 more file")
    page.goto(f"{site.url}/?q=When does the ferry leave? <script>alert(4)</script>")
    hit = page.locator(".hit", has_text="<script>alert(2)</script>")
    expect(hit).to_have_count(1)
    hit.locator(".name").click()
    expect(page.locator("#text")).to_contain_text('<img src=x onerror="alert(1)">')
    assert page.locator("#text img, #text script").count() == 0


def test_one_model_reads_and_writes(site: Site, visit: Visit) -> None:
    page = visit(f"{site.url}/?q={QUESTION}")
    expect(page.locator("#about")).to_contain_text("MB of weights read and write: a second model for embedding")
    expect(page.locator("#answer .quote")).not_to_have_count(0)
    expect(page.locator("#written-note")).to_contain_text("only continues texts")
    expect(page.locator("#written-body")).not_to_be_empty()


def test_drop_takes_files(site: Site, visit: Visit) -> None:
    page = visit(f"{site.url}/library")
    expect(page.locator(".document-row")).not_to_have_count(0)
    before = page.locator(".document-row").count()
    data = page.evaluate_handle(
        "() => { const data = new DataTransfer();"
        " data.items.add(new File(['Herons stand in the shallow water and wait.'], 'herons.txt'));"
        " data.items.add(new File(['x'], 'virus.exe')); return data; }"
    )
    page.dispatch_event("#drop", "drop", {"dataTransfer": data})
    expect(page.locator("#status")).to_contain_text("Not taken: Virus.exe is of a type that is not read")
    expect(page.locator(".document-row")).to_have_count(before + 1)


def test_heat_and_keyboard(site: Site, visit: Visit) -> None:
    page = visit(f"{site.url}/?q={QUESTION}")
    expect(page.locator(".hit")).to_have_count(8)
    page.locator("body").click(position={"x": 5, "y": 500})
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator(".hit .name").nth(1)).to_be_focused()
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page.locator("#text")).to_have_class("text hot")
    warmest = page.evaluate(
        "() => [...document.querySelectorAll('.s')].sort((a, b) => b.dataset.c - a.dataset.c)[0].textContent"
    )
    page.keyboard.press("j")
    expect(page.locator(".s.here").first).to_have_text(warmest)
    page.wait_for_timeout(200)
    assert in_view(page, ".s.here")
    page.keyboard.press("h")
    expect(page.locator("#text")).to_have_class("text")
    page.locator("#back").click()
    expect(page.locator(".hit")).to_have_count(8)


def axe() -> str:
    spec = find_spec("axe_playwright_python")
    assert spec is not None and spec.origin is not None
    return (Path(spec.origin).parent / "axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_use_it(site: Site, browser: Browser, theme: Any) -> None:
    """axe-core finds nothing serious; on a phone nothing sticks out to the side."""
    key = site.documents()[0]["id"]
    # The policy of the page would keep the checker itself out.
    context = browser.new_context(color_scheme=theme, bypass_csp=True, reduced_motion="reduce")
    page = context.new_page()
    for path in ("/", f"/?q={QUESTION}", "/library", f"/documents/{key}?q={QUESTION}", "/why", "/nothing"):
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto(f"{site.url}{path}")
        if path.startswith("/?q"):
            expect(page.locator(".hit")).to_have_count(8)
        if path == "/library":
            expect(page.locator(".document-row").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        page.set_viewport_size({"width": 1280, "height": 900})
        page.evaluate(axe())
        # The pictures have a name and a text beside them; their thousands of dots have nothing to be checked.
        rules = "{}" if theme == "light" else "{runOnly: ['color-contrast']}"
        found = page.evaluate(f"axe.run({{exclude: ['svg']}}, {rules})")["violations"]
        serious = [
            (each["id"], each["impact"], [node["html"][:120] for node in each["nodes"]])
            for each in found
            if each["impact"] in ("serious", "critical")
        ]
        assert serious == [], path
    assert page.evaluate("getComputedStyle(document.body).colorScheme") == theme
    context.close()


def test_themes(site: Site, visit: Visit) -> None:
    """The system's theme, until another one is chosen; that one stays."""
    page = visit(f"{site.url}/", color_scheme="dark")
    colour = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(colour)
    page.locator("#theme").click()
    light = page.evaluate(colour)
    assert dark != light
    page.goto(f"{site.url}/library")
    assert page.evaluate(colour) == light
