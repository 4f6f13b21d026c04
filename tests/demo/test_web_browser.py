"""The page in a real browser: what a reader does, sees and can reach without a mouse.

`make test-browser` runs these; they need Debian's `chromium`, or another that CHROMIUM names.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Route, expect
from tests.browsers import chromium
from tests.demo.conftest import BREAD, CLOCK, TIDES, recommend
from tests.demo.site import GUIDE, PATIENCE, Site, hold_rebuild, long_text, serving, two_pages, wait

from chroma_eddy import index as chroma_index
from eddy_demo.library import library as libraries
from eddy_demo.web.answers import write
from eddy_embed.methods.recommended import Recommendation

pytestmark = pytest.mark.browser
QUESTION = "When does the ferry to the northern island leave?"
HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script> The ferry leaves at noon.'
TITLED = """<html><head><title>&lt;img src=x onerror=alert(5)&gt; Otters</title></head><body>
<h1>&lt;img src=x onerror=alert(6)&gt; The otters of the weir</h1><p>Otters slide down the muddy bank of the weir.</p>
<script>alert(7)</script></body></html>"""
FARES = """# Fares

| Route | Fare | Note |
| --- | --- | --- |
| Heron rock | 5 crowns | dogs travel for free |
| Gannet skerry | 7 crowns | bicycles need a ticket |
"""
LONG_NAME = f"{'long' * 36}.md"
expect.set_options(timeout=PATIENCE * 1000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A library with two hostile documents and a long name, whose model writes a few words of each answer."""
    folder = tmp_path_factory.mktemp("web") / "library"
    with pytest.MonkeyPatch.context() as patch, serving(folder, method=None, generate=True) as site:
        patch.setattr(write, "MAX_NEW_TOKENS", 8)
        site.upload("guide.md", f"{GUIDE}\n## Notes\n\n{long_text(90)}")
        for name, text in (("notes.txt", long_text(30, seed=2)), ("t.md", TIDES), ("b.txt", BREAD), ("c.html", CLOCK)):
            site.upload(name, text)
        site.upload('"><script>alert(3).txt', HOSTILE)
        site.upload("title.html", TITLED)
        site.upload("fares.md", FARES)
        site.upload(LONG_NAME, f"# {'Heading' * 20}\n\nThe ferry leaves at noon.")
        site.settled()
        yield site


Visit = Callable[..., Page]


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Opens pages; whatever a page's script complains of, and any dialog, fails the test."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def opened(url: str, refused: int = 415, **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        context.set_default_timeout(PATIENCE * 1000)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("console", lambda told: complaints.append(told.text) if _bad(told, refused) else None)
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def _bad(told: ConsoleMessage, refused: int) -> bool:
    # That the server is gone for a moment, or refuses something, is what some tests are about.
    expected = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED", f"status of {refused}")
    return told.type == "error" and not any(each in told.text for each in expected)


def in_view(page: Page, selector: str) -> bool:
    """Whether a reader sees it, once nothing moves any more."""
    box, before = page.locator(selector).first.bounding_box(), None
    while box != before:
        page.wait_for_timeout(200)
        box, before = page.locator(selector).first.bounding_box(), box
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
        page.get_by_role("link", name="Library", exact=True).click()
        page.locator("#files").set_input_files([tmp_path / "guide.txt", tmp_path / "tides.md"])
        job = page.locator(".job", has_text="guide.txt")
        for _ in range(2):
            expect(job.locator(".message")).to_contain_text("Being embedded")
            expect(job.locator("progress")).not_to_have_js_property("value", 0)
            page.reload()  # in the midst of it
        site.resume()
        expect(page.locator(".document-row")).to_have_count(2)
        expect(page.locator(".job.done")).to_have_count(2)
        page.keyboard.press("/")
        page.wait_for_url(f"{site.url}/")
        page.keyboard.type("When does the ferry to the northern island leave?")
        page.keyboard.press("Enter")
        marked = "The ferry to the northern island leaves at noon."
        hit = page.locator(".hit", has=page.locator("mark", has_text=marked))
        expect(hit).to_have_count(1)
        expect(page.locator("#answer .quote").first).to_contain_text(marked)
        hit.locator(".name").click()
        page.wait_for_url("**/documents/**")
        expect(page.locator(".s.here")).to_have_text(marked)
        assert in_view(page, ".s.here")
        start, end = map(int, page.url.rsplit("-", 2)[1:])
        assert text[start:end] == marked
        again = visit(page.url.split("?")[0] + "#" + page.url.split("#")[1])
        expect(again.locator(".s.here")).to_have_text(marked)
        assert in_view(again, ".s.here")


def test_the_page_goes_on_when_the_server_is_back(tmp_path: Path, visit: Visit) -> None:
    """The server ends while it embeds; the page that stayed open sees the next one finish, and may delete."""
    with serving(tmp_path / "library", paused=True) as site:
        page = visit(f"{site.url}/library")
        site.upload("guide.txt", long_text(250).encode())
        expect(page.locator(".job .message")).to_contain_text("Being embedded")
        expect(page.locator(".job progress")).not_to_have_js_property("value", 0)
        port = int(site.url.rsplit(":", 1)[1])
    expect(page.locator("#banner")).to_contain_text("The server does not answer.")
    with serving(tmp_path / "library", port=port):
        expect(page.locator(".document-row")).to_have_count(1)
        expect(page.locator("#banner")).to_be_hidden()
        page.get_by_role("button", name="Delete guide.txt").click()
        page.get_by_role("button", name="Delete", exact=True).click()
        expect(page.locator("#none")).to_be_visible()


def test_cancel_and_put_away(tmp_path: Path, visit: Visit) -> None:
    """A click counts although the page is told of progress while the button is held down; the focus stays, too."""
    with serving(tmp_path / "library", paused=True) as site:
        page = visit(f"{site.url}/library", bypass_csp=True)
        site.upload("guide.txt", long_text(250))
        site.upload("tides.md", "# Tides\n\nThe moon pulls the water of the sea.\n")
        job = page.locator(".job", has_text="guide.txt")
        expect(job.locator("progress")).not_to_have_js_property("value", 0)
        cancel = page.get_by_role("button", name="Cancel guide.txt")
        cancel.focus()
        cancel.hover()
        page.mouse.down()
        site.upload("bread.txt", "Bread needs flour, water, salt and time.")
        expect(page.locator(".job", has_text="bread.txt")).to_be_visible()
        expect(cancel).to_be_focused()
        assert serious(page) == []
        page.mouse.up()
        expect(job).to_have_count(0)
        site.resume()
        expect(page.locator(".job.done")).to_have_count(2)
        expect(page.locator(".document-row")).to_have_count(2)

        for number in range(2):
            site.upload(f"odd{number}.pdf", f"%PDF-1.4 odd {number}")
        expect(page.locator(".job.failed")).to_have_count(2)
        page.get_by_role("button", name="Put away odd0.pdf").focus()
        site.upload("more.txt", "The mill grinds rye.")
        expect(page.locator(".job.done")).to_have_count(3)
        expect(page.get_by_role("button", name="Put away odd0.pdf")).to_be_focused()
        assert serious(page) == []
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.get_by_role("button", name="Put away what failed").click()
        expect(page.locator(".job.failed")).to_have_count(0)
        page.get_by_role("button", name="Clear finished").click()
        expect(page.locator("#work")).to_be_hidden()


def test_reading_more_closely_is_shown_until_it_is_done(
    tmp_path: Path, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a bar and the time left; the page can be asked meanwhile."""
    recommend(monkeypatch, Recommendation("plain:exit=-3"))
    monkeypatch.setattr(chroma_index, "GROUP_DOCUMENTS", 1)
    monkeypatch.setattr(libraries, "_MEASURED_SECONDS", 1e-9)
    go = hold_rebuild(monkeypatch, after=1)
    with serving(tmp_path / "library", method=None) as site:
        page = visit(f"{site.url}/library", bypass_csp=True)
        resume = site.pause()
        site.upload("b.txt", BREAD)
        site.upload("t.md", TIDES)
        resume()
        closer = page.locator("#closer")
        expect(closer).to_contain_text(re.compile(r"Reading more closely: \d+ %, about [\w ]+ left\."))
        expect(page.locator("#closer-bar")).not_to_have_js_property("value", 0)
        expect(page.locator("#banner")).to_be_hidden()
        expect(page.locator("#totals")).to_have_text("2 documents, read by eddy-tiny, so far without its layers")
        assert serious(page) == []
        page.goto(f"{site.url}/?q=What makes steam?")
        expect(page.locator(".hit").first).to_contain_text("steam")
        page.goto(f"{site.url}/library")
        go()
        expect(closer).to_be_hidden()
        expect(page.locator("#totals")).to_have_text("2 documents, read by eddy-tiny")


def test_hostile_content_is_only_text(site: Site, visit: Visit) -> None:
    page = visit(f"{site.url}/library")
    expect(page.locator(".document-row", has_text='"><script>alert(3).txt')).to_be_visible()
    expect(page.locator(".job.done")).to_have_count(9)
    expect(page.locator(".document-row", has_text="<img src=x onerror=alert(5)> Otters")).to_be_visible()
    page.goto(f"{site.url}/?q=When does the ferry leave? <script>alert(4)</script>")
    hit = page.locator(".hit", has_text="<script>alert(2)</script>")
    expect(hit).to_have_count(1)
    hit.locator(".name").click()
    expect(page.locator("#text")).to_contain_text('<img src=x onerror="alert(1)">')
    assert page.locator("#text img, #text script").count() == 0
    page.goto(f"{site.url}/?q=Where do otters slide down the muddy bank?")
    hit = page.locator(".hit", has_text="Otters slide down").first
    expect(hit).to_contain_text("<img src=x onerror=alert(5)> Otters")
    hit.locator(".name").click()
    expect(page.locator("h1")).to_contain_text("<img src=x onerror=alert(5)> Otters")
    expect(page.locator("#text")).to_contain_text("<img src=x onerror=alert(6)> The otters")
    assert page.locator("main img, main script").count() == 0


def test_written_sentences_have_checked_citations_and_writing_can_be_stopped(
    site: Site, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, ended = True, threading.Event()

    def written(question: str, sentences: list[dict[str, Any]]) -> Iterator[str]:
        quote = sentences[0]["text"]
        try:
            yield f"{quote} {changed(quote)} The moon is made of cheese. "
            while not ends:
                time.sleep(0.02)
                yield ""
        finally:
            ended.set()

    monkeypatch.setattr(site.state.reader.generator, "_pieces", written)
    page = visit(f"{site.url}/?q={QUESTION}")
    expect(page.locator("#written-note")).to_contain_text(
        "2 sentences left out: quoted above, or said by no sentence found."
    )
    first = page.locator("#answer .quote").first.evaluate("quote => quote.firstChild.textContent")
    expect(page.locator("#written-body")).to_have_text(f"{changed(first)}1")
    ends = False
    ended.clear()
    page.reload()
    expect(page.locator("#written-body .cite")).to_have_text("1")
    page.get_by_role("button", name="Stop writing").click()
    expect(page.locator("#status")).to_have_text("Stopped.")
    expect(page.locator("#stop")).to_be_hidden()
    expect(page.locator("#written-body .cite")).to_have_text("1")
    assert ended.wait(PATIENCE)


def changed(sentence: str) -> str:
    """A sentence in other words, of which those that count are the same."""
    return f"So it is: {sentence}"


def test_the_model_reranks_where_it_is_asked_to(site: Site, visit: Visit) -> None:
    """The first answer stays until the passages are re-ranked; the choice is remembered; re-ranking can be stopped."""
    page = visit(f"{site.url}/")
    page.get_by_label("Re-rank the passages").check()
    page.locator("#question").fill(QUESTION)
    page.get_by_role("button", name="Ask").click()
    expect(page.locator("#status")).to_contain_text("re-ranked in")
    expect(page.locator("#hits .hit")).to_have_count(8)
    page.reload()
    expect(page.get_by_label("Re-rank the passages")).to_be_checked()
    expect(page.locator("#status")).to_contain_text("re-ranked in")
    reader, held = site.state.reader, threading.Event()
    own = reader.reranker

    def slow() -> Any:
        assert held.wait(PATIENCE)
        return own()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "reranker", slow)
        page.reload()
        expect(page.locator("#status")).to_contain_text("begins to re-rank")
        expect(page.locator("#hits .hit")).to_have_count(8)
        page.get_by_role("button", name="Stop re-ranking").click()
        held.set()
    expect(page.locator("#status")).to_have_text("Stopped.")
    expect(page.locator("#hits .hit")).to_have_count(8)


def test_one_document_is_asked_and_the_question_is_listed(site: Site, visit: Visit) -> None:
    key = next(each["id"] for each in site.documents() if each["name"] == "guide.md")
    page = visit(f"{site.url}/documents/{key}")
    page.get_by_role("link", name="Ask this document").click()
    page.locator("#question").fill("What is sold?")
    page.keyboard.press("Enter")
    expect(page.locator(".hit")).to_have_count(8)
    assert page.url == f"{site.url}/?q=What+is+sold%3F&in={key}"
    links = page.locator(".hit .name").evaluate_all("links => links.map(each => each.pathname)")
    assert set(links) == {f"/documents/{key}"}
    page.locator(".hit .name").first.click()
    page.get_by_role("link", name="Back to the results").click()
    expect(page.locator("#about")).to_contain_text("alone")
    page.get_by_role("link", name="ask all documents").click()
    page.locator("#asked a").first.click()
    expect(page.locator("#question")).to_have_value("What is sold?")
    page.goto(site.url)
    page.get_by_role("button", name="Forget these").click()
    page.reload()
    expect(page.locator("#asked")).to_be_hidden()


def test_a_row_is_quoted_and_drawn_under_the_head_of_its_table(site: Site, visit: Visit) -> None:
    page = visit(f"{site.url}/?q=What is the fare to Gannet skerry?", viewport={"width": 360, "height": 800})
    quote = page.locator("#answer .quote table").first
    expect(quote.locator("th")).to_have_text(["Route", "Fare", "Note"])
    expect(quote.locator("td")).to_have_text(["Gannet skerry", "7 crowns", re.compile("bicycles need a ticket")])
    passage = page.locator(".hit", has_text="Gannet skerry").first
    expect(passage.locator("tr.best td").first).to_have_text("Gannet skerry")
    expect(passage.locator("tr")).to_have_count(3)
    place = passage.locator(".place").bounding_box()
    assert place is not None and place["width"] > 200 and page.evaluate("document.documentElement.scrollWidth") <= 360
    passage.locator(".name").click()
    expect(page.locator("#text tr.here td")).to_have_text(["Gannet skerry", "7 crowns", "bicycles need a ticket"])
    expect(page.locator("#text th")).to_have_text(["Route", "Fare", "Note"])


def test_heat_and_keyboard(site: Site, visit: Visit) -> None:
    page = visit(f"{site.url}/?q={QUESTION}")
    expect(page.locator(".hit")).to_have_count(8)
    expect(page.locator("#status")).to_contain_text("the model added nothing")
    expect(page.locator("#written")).to_be_hidden()
    page.locator("body").click(position={"x": 5, "y": 500})
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
    assert in_view(page, ".s.here")
    page.locator("#heat-on").click()
    expect(page.locator("#text")).to_have_class("text")
    page.locator("#back").click()
    expect(page.locator(".hit")).to_have_count(8)


def axe() -> str:
    spec = find_spec("axe_playwright_python")
    assert spec is not None and spec.origin is not None
    return (Path(spec.origin).parent / "axe.min.js").read_text(encoding="utf-8")


def serious(page: Page, rules: str = "{}") -> list[Any]:
    """What axe-core finds serious on a page, whose policy must let it in."""
    page.evaluate(axe())
    found = page.evaluate(f"axe.run(document, {rules})")["violations"]
    return [
        (each["id"], each["impact"], [node["html"][:120] for node in each["nodes"]])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_use_it(site: Site, browser: Browser, theme: Any) -> None:
    """axe-core finds nothing serious; on a phone nothing sticks out to the side, however long its name is."""
    key = next(each["id"] for each in site.documents() if each["name"] == LONG_NAME)
    # The policy of the page would keep the checker itself out.
    context = browser.new_context(color_scheme=theme, bypass_csp=True, reduced_motion="reduce")
    page = context.new_page()
    for path in ("/", f"/?q={QUESTION}", "/library", f"/documents/{key}?q={QUESTION}", "/nothing"):
        page.set_viewport_size({"width": 360, "height": 800})
        page.goto(f"{site.url}{path}")
        named = {"/?": ".hit", "/l": ".document-row", "/d": ".side h1"}.get(path[:2])
        if named:
            expect(page.locator(named, has_text="Heading" * 20)).to_have_count(1)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        page.set_viewport_size({"width": 1280, "height": 900})
        assert serious(page, "{}" if theme == "light" else "{runOnly: ['color-contrast']}") == [], path
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert colour == {"light": "rgb(251, 250, 246)", "dark": "rgb(20, 23, 26)"}[theme]
    context.close()


def test_pages_that_nobody_sees_hold_no_connection(site: Site, visit: Visit) -> None:
    """A browser has six to a server: more pages than that may be open. One that is looked at again is told again."""
    first = visit(f"{site.url}/library")
    pages = [first, *(first.context.new_page() for _ in range(7))]
    for page in pages:
        page.goto(f"{site.url}/library")
        expect(page.locator(".document-row")).not_to_have_count(0)
        show(page, False)
    wait(lambda: not site.server.server_state.tasks)
    page = first.context.new_page()
    page.goto(f"{site.url}/?q={QUESTION}")
    expect(page.locator(".hit")).to_have_count(8)
    show(page, False)
    shown = pages[3]
    count = shown.locator(".document-row").count()
    site.upload("swans.txt", "Swans are silent until they land.")
    site.settled()
    show(shown, True)
    expect(shown.locator(".document-row")).to_have_count(count + 1)


def show(page: Page, visible: bool) -> None:
    """What a browser tells a page that comes before another one, or behind it."""
    page.evaluate(
        "visible => { Object.defineProperty(document, 'hidden', {value: !visible, configurable: true});"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        visible,
    )


def test_what_the_server_refuses_is_shown(site: Site, visit: Visit) -> None:
    page = visit(f"{site.url}/library", refused=403)
    expect(page.locator(".document-row")).not_to_have_count(0)
    page.evaluate("document.querySelector('meta[name=token]').content = 'another'")
    page.evaluate("document.getElementById('clear').click()")
    expect(page.locator("#status")).to_contain_text("The page is older than the server")


def test_an_answer_that_breaks_off_says_so(site: Site, visit: Visit) -> None:
    page = visit(f"{site.url}/")
    begun = 'event: answer\ndata: {"sentences": [], "answers": false}\n\n'
    for body in ("", begun):
        page.route("**/api/ask?**", broken(body), times=1)
        page.locator("#question").fill("When does the ferry leave?")
        page.locator("#status").evaluate("status => { status.textContent = ''; }")
        page.locator("#question").press("Enter")
        expect(page.locator("#status")).to_contain_text("The answer broke off;")
    page.locator("#question").press("Enter")
    expect(page.locator(".hit")).to_have_count(8)


def broken(body: str) -> Callable[[Route], None]:
    """An answer that ends there."""
    return lambda route: route.fulfill(content_type="text/event-stream", body=body)


def test_files_dropped_on_any_page_are_read(tmp_path: Path, visit: Visit) -> None:
    """A browser would leave the page and show the file."""
    with serving(tmp_path / "library") as site:
        page = visit(f"{site.url}/")
        expect(page.get_by_role("heading", name="Nothing to ask yet")).to_be_visible()
        drop(page, "body", "ferry.txt")
        page.wait_for_url("**/library")
        expect(page.locator(".document-row")).to_have_text(re.compile("ferry.txt"))
        drop(page, "#drop", "herons.txt", "virus.exe")
        expect(page.locator("#status")).to_contain_text("Not taken: virus.exe is of a type that is not read")
        expect(page.locator(".document-row")).to_have_count(2)


def drop(page: Page, selector: str, *names: str) -> None:
    """Drop files that say their names."""
    data = page.evaluate_handle(
        "names => { const data = new DataTransfer();"
        " for (const name of names) data.items.add(new File([`This is ${name}.`], name)); return data; }",
        list(names),
    )
    page.dispatch_event(selector, "drop", {"dataTransfer": data})


def test_folders_are_watched_until_that_is_stopped(tmp_path: Path, visit: Visit) -> None:
    """What is told of them outlives a reload; a folder that is not there is refused, and one that goes is said to."""
    notes, more = tmp_path / "notes", tmp_path / "more <b>"
    for folder in (notes, more):
        folder.mkdir()
        (folder / f"{folder.name[:4]}.txt").write_text(f"This is {folder.name}.", encoding="utf-8")
    (notes / "broken.pdf").write_bytes(b"no PDF")
    with serving(tmp_path / "library") as site:
        page = visit(f"{site.url}/library", refused=404)
        expect(page.locator("#drop-note")).to_contain_text(".txt .md .markdown .html .htm .pdf .docx .pptx .xlsx")
        rows = page.locator("#folders > li")
        for count, path in enumerate((tmp_path / "none", notes, more)):
            page.get_by_label("Folder on this machine").fill(str(path))
            page.get_by_role("button", name="Watch this folder").click()
            expect(rows).to_have_count(count)
            if path.name == "none":
                expect(page.locator("#folder-status")).to_have_text(f"There is no folder {path} on this machine.")
        expect(page.locator("#folder-status")).to_have_text("")
        page.reload()
        expect(rows.nth(0)).to_contain_text("Watched: 2 files.")
        expect(rows.nth(0).locator("li")).to_contain_text("broken.pdf: damaged, or no PDF file")
        expect(rows.nth(1)).to_contain_text(str(more))
        (notes / "broken.pdf").unlink()
        expect(rows.nth(0).locator("li")).to_have_count(0)
        more.rename(tmp_path / "elsewhere")
        expect(rows.nth(1)).to_contain_text("This folder is not there.")
        page.get_by_role("button", name=f"Stop watching {notes}").click()
        expect(rows).to_have_count(1)
        expect(page.locator(".document-row")).to_have_count(2)


def test_an_empty_page_is_that_of_now(site: Site, visit: Visit) -> None:
    """While the library is opened, after an answer of which nothing stays, and with words that no passage has."""
    site.state.reader._loaded.clear()
    page = visit(f"{site.url}/")
    expect(page.get_by_role("heading", name="The library is being opened")).to_be_visible()
    site.state.reader._loaded.set()
    site.state.reader.mark_changed()
    expect(page.get_by_role("heading", name="Ask in your own words")).to_be_visible()
    page.locator("#question").fill(QUESTION)
    page.keyboard.press("Enter")
    expect(page.locator(".hit b").first).to_have_text("ferry")
    page.go_back()
    expect(page.locator("#question")).to_have_value("")
    expect(page.locator(".hit")).to_have_count(0)
    page.locator("#question").fill('What is "anachronistic zeppelins"?')
    page.keyboard.press("Enter")
    expect(page.locator(".honest")).to_have_text("Not in your documents.")
    expect(page.locator("#answer .note")).to_contain_text("Ask without these signs")
    expect(page.locator("#found")).to_be_hidden()


def test_the_page_of_a_pdf_beside_its_sentence(tmp_path: Path, visit: Visit) -> None:
    """By keyboard alone; beside the text where there is room, below it on a phone; it follows the sentence."""
    with serving(tmp_path / "library") as site:
        site.upload("ferry.pdf", two_pages("The ferry to the island leaves at noon."))
        site.settled()
        page = visit(f"{site.url}/?q=When does the ferry to the island leave?", bypass_csp=True)
        picture = page.locator(".original img")
        for place in ("#answer .source:has-text('p. 2')", ".hit"):
            page.locator(f"{place} .show-page").first.press("Enter")
            expect(picture).to_have_attribute("alt", "Page 2 of 2, with the sentence marked.")
            expect(page.locator(".original")).to_have_count(1)
            assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 1000
            assert beside(page, f"{place} .show-page") and serious(page) == []
        page.keyboard.press("Escape")
        expect(page.locator(".original")).to_have_count(0)
        button = page.locator(".hit .show-page").first
        expect(button).to_be_focused()
        expect(button).to_have_text("Show the page")

        page.locator(".hit .name").first.click()
        page.wait_for_url("**/documents/**")
        page.locator("#text .show-page").click()
        expect(picture).to_be_visible()
        assert beside(page, ".s.here") and serious(page) == []
        page.keyboard.press("j")
        page.keyboard.press("j")
        expect(picture).to_have_attribute("alt", "Page 1 of 2, with the sentence marked.")
        page.set_viewport_size({"width": 390, "height": 844})
        assert not beside(page, "#text .show-page")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.get_by_role("button", name="Close").click()
        expect(page.locator("#text .show-page")).to_be_focused()


def beside(page: Page, selector: str) -> bool:
    """Whether the original is to the right of an element, and not below it."""
    box, original = (page.locator(each).first.bounding_box() for each in (selector, ".original"))
    assert box is not None and original is not None
    return original["x"] >= box["x"] + box["width"]
