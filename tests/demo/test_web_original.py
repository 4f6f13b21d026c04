"""The original: a page of a PDF file as an image, with the cited sentence marked on it."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from pypdfium2 import PdfDocument
from tests.demo.site import Site
from tests.readers.pdf_builder import pdf, rewritten

from eddy_demo.library.library import to_index_document
from eddy_demo.web import page_images
from eddy_demo.web.http import Limits
from eddy_demo.web.page_images import draw_original, find_original
from eddy_embed.integrations.http_guard import RequestRefused
from readers_eddy.documents import read_documents
from readers_eddy.pdf import page_image

# The second line ends in a hyphen of the typesetter's, which the text does not have.
FIRST = ["The ferry leaves at noon.", "Ask for a ticket at the har-", "bour, it is ﬁne. The ferry leaves at noon."]
SECOND = ["Dogs travel for free on every boat of the line."]
TWICE, HYPHENATED = "The ferry leaves at noon.", "Ask for a ticket at the harbour, it is fine."


@pytest.fixture(scope="module")
def data() -> bytes:
    return pdf(FIRST, SECOND, font="Vera")


def page(site: Site, number: int, **headers: str) -> httpx.Response:
    """The page of a sentence of `ferry.pdf`."""
    key = next(row["id"] for row in site.documents() if row["name"] == "ferry.pdf")
    sentence = site.state.reader.document(key).content.sentences[number]
    place = {"start": sentence.start, "end": sentence.end}
    return site.client.get(f"/api/documents/{key}/page", params=place, headers=headers)


def marked(image: bytes) -> Any:
    """Which points of an image have the colour of a mark, shape (height, width)."""
    rgb = np.asarray(Image.open(io.BytesIO(image)).convert("RGB"))
    return (rgb[..., 0] > 200) & (rgb[..., 2] < 180)


def lines(image: bytes) -> int:
    """How many lines of an image are marked."""
    rows = marked(image).sum(axis=1) > 10
    return int((rows[1:] > rows[:-1]).sum())


def boxes(data: bytes, before: str, text: str) -> list[page_image.Box]:
    with PdfDocument(data) as document:
        return page_image.find_text(document[0].get_textpage(), before, text)


def test_a_text_is_found_across_lines_hyphens_and_ligatures(data: bytes) -> None:
    upper, lower = boxes(data, "", HYPHENATED)
    (end,) = boxes(data, "", "it is fine")
    assert upper[1] > lower[3]
    assert [line[::2] for line in boxes(data, "", "ASK, for a  ticket-at the hár\nbour, it IS fine")] == [
        upper[::2],
        (lower[0], end[2]),
    ]
    assert boxes(data, "", "Ask for a ticket at the station.") == boxes(data, "", "…") == []


def test_a_repeated_sentence_is_marked_where_it_stands(data: bytes) -> None:
    (first,) = boxes(data, "", TWICE)
    (second,) = boxes(data, f"{TWICE} {HYPHENATED}", TWICE)
    assert first[1] > second[3]
    # A header that the text lacks may say it as well.
    assert boxes(data, TWICE * 5, TWICE) == [second]


def test_marks_follow_a_page_that_is_turned(data: bytes) -> None:
    upright, found = page_image.draw_page(data, 2, "", SECOND[0])
    assert found and lines(upright) == 1
    for quarters in (1, 2):
        file = rewritten(data, lambda writer, angle=90 * quarters: writer.pages[1].rotate(angle))
        turned = marked(page_image.draw_page(file, 2, "", SECOND[0])[0])
        expected = np.rot90(marked(upright), -quarters)
        assert (turned & expected).sum() > 0.8 * (turned | expected).sum()


def test_an_image_is_of_bounded_size() -> None:
    for size in ((14_400, 14_400), (20, 14_400), (3, 3)):
        file = rewritten(b"", lambda writer, size=size: writer.add_blank_page(*size))
        image = Image.open(io.BytesIO(page_image.draw_page(file, 1, "", "a")[0]))
        assert image.width * image.height <= 1.01 * 2_000_000 and max(image.size) <= 8_000


def test_the_page_shows_its_sentence_marked_and_a_browser_keeps_it(site: Site) -> None:
    for number in (0, 1):
        answer = page(site, number)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "image/webp")
        assert answer.headers["x-eddy-caption"] == f"Page {number + 1} of 2, with the sentence marked."
        assert lines(answer.content) == 1
        assert answer.headers["cache-control"] == "private, no-cache"
    known = {"if-none-match": answer.headers["etag"]}
    again = page(site, 1, **known)
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", answer.headers["etag"])
    assert page(site, 0, **known).status_code == 200


def test_a_place_outside_the_text_has_no_page(site: Site) -> None:
    keys = {row["name"]: row["id"] for row in site.documents()}
    for start, end in ((-1, 5), (5, 5), (0, 10_000)):
        answer = site.client.get(f"/api/documents/{keys['ferry.pdf']}/page?start={start}&end={end}")
        assert (answer.status_code, answer.json()["error"]) == (404, "the document has no such place any more")
    assert site.client.get(f"/api/documents/{keys['bread.txt']}/page?start=0&end=5").status_code == 404


def entry(path: Path) -> tuple[Any, str]:
    """The entry and the text of a document as the command line writes it."""
    document = to_index_document(read_documents([path]).documents[0])
    return SimpleNamespace(id=document.id, metadata=document.metadata, page_starts=document.page_starts), document.text


def test_a_file_of_the_command_line_is_shown_while_it_is_unchanged(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "ferry.pdf"
    path.write_bytes(data)
    row, _ = entry(path)
    assert find_original(tmp_path / "library", row) == path
    path.write_bytes(data + b"\n")
    with pytest.raises(RequestRefused, match=r"ferry.pdf has changed since it was read; ingest it again"):
        find_original(tmp_path / "library", row)
    path.unlink()
    with pytest.raises(RequestRefused, match=r"ferry.pdf is not any more where it was read"):
        find_original(tmp_path / "library", row)


def test_a_sentence_across_pages_and_one_that_is_not_there(
    tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ferry.pdf"
    path.write_bytes(data)
    row, text = entry(path)
    with monkeypatch.context() as patch:
        patch.setattr(page_images, "subprocess", subprocess)  # as users have it
        image = draw_original(path, row, text, text.rindex(TWICE), len(text), Limits())
    assert image.caption == "Page 1 of 2, with the sentence marked. It continues on the next page."
    path.write_bytes(pdf(SECOND, SECOND))
    image = draw_original(path, row, text, 0, len(TWICE), Limits())
    assert image.caption.startswith("Page 1 of 2. The sentence was not found in the text of this page")
    assert lines(image.data) == 0


def test_drawing_is_bounded(tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_images, "subprocess", subprocess)
    path = tmp_path / "ferry.pdf"
    path.write_bytes(data)
    row, text = entry(path)
    with pytest.raises(RequestRefused, match=r"drawing page 1 took longer than 0.01 seconds and was stopped"):
        draw_original(path, row, text, 0, 5, Limits(page_seconds=0.01))
    with pytest.raises(RequestRefused, match=r"page 1 cannot be drawn .* more than 20 MB of memory"):
        draw_original(path, row, text, 0, 5, Limits(parse_bytes=20 * 2**20))
