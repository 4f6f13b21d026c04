"""HTML, Markdown and Word files become what a reader sees, in the shape of Markdown."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from docx.oxml import parse_xml
from tests.demo.word_files import word_file

from eddy_embed import Segmenter
from readers_eddy.documents import read_documents
from readers_eddy.errors import Unreadable
from readers_eddy.markup import read_html, read_markdown
from readers_eddy.office.word import read_docx
from readers_eddy.scripts import raised

CODE = "def f(x):\n    # Twice. Not more.\n    return  2 * x\n\n\nprint(f(1))"

# Each pair: markup, and what a reader sees of it.
PAGES = [
    ("<p>One</p><p>Two</p>", "One\n\nTwo"),
    ("<p>One <b>bold</b>\n  word</p>", "One bold word"),
    ("a<br>\n b", "a\nb"),
    ("<h1>Big\n title</h1>text<h3>Small</h3>", "# Big title\n\ntext\n\n### Small"),
    ("<p>a*b_c [x] <a href='u'>link</a> <code>k</code> H<sub>2</sub>O <q>said</q></p>", 'a*b_c [x] link k H₂O "said"'),
    ("<p>5 &lt; 6 &amp; caf&eacute; &euro; &#x1F30A;</p>", "5 < 6 & café € 🌊"),
    # Lists.
    ("<ul><li>x<li>y</ul>after", "- x\n- y\n\nafter"),
    ("<ol start=3><li>a<ul><li>b<ol><li>c</ol></ul><li>d</ol>", "3. a\n   - b\n     1. c\n4. d"),
    ("<ol><li>a<li value=5>b<li><p>c</p><p>d</p></ol>", "1. a\n5. b\n6. c\n\n   d"),
    ("<dl><dt>Term<dd>Meaning</dl>", "Term\n:   Meaning"),
    # Tables: a line for each row; those that only arrange a page are none.
    (
        "<table><caption>Tides</caption><thead><tr><th>Harbour<th>High water</thead>"
        "<tr><td>Alden<td><p>04:10.</p><p>Spring</p><tr><td colspan=2>none</table>",
        "Tides\n\n| Harbour | High water |\n| Alden | 04:10. Spring |\n| none | none |",
    ),
    ("<table><tr><td><h1>Site</h1><p>One.</p><table><tr><td>i<td>j</table></table>", "# Site\n\nOne.\n\n| i | j |"),
    ("<table role=presentation><tr><td>left<td>right</table>", "left\n\nright"),
    # Code.
    (f"<pre>{CODE}\n</pre>", f"```\n{CODE}\n```"),
    (f'<pre><code class="language-python">{CODE}</code></pre>', f"```python\n{CODE}\n```"),
    ("<pre>```\nx\n```</pre>", "````\n```\nx\n```\n````"),
    ("<ul><li>Run:<pre>a\n  b</pre></ul>", "- Run:\n\n  ```\n  a\n    b\n  ```"),
    # What is not read.
    ("<head><title>T</title></head><script>x()</script><style>p{}</style><!-- no --><p>Seen</p>", "Seen"),
    ("<svg><text>no</text></svg><template>no</template><noscript>no</noscript><select><option>no</select>a", "a"),
    ('<?xml version="1.0"?><!DOCTYPE html><html><body>t</body></html>', "t"),
    # Tags that are not closed, and blocks that HTML 4 did not know.
    ("<div>open <p>unclosed" + "<p>x" * 500, "open\n\nunclosed" + "\n\nx" * 500),
    ("<main>One</main><aside>Two</aside><nav>Three</nav>", "One"),
    ("<nav>Home</nav><div role=navigation>Login</div><p>One</p><aside>Two</aside>", "One\n\nTwo"),
    ("<main></main><p>One</p>", "One"),
    ("no markup at all", "no markup at all"),
]


@pytest.mark.parametrize(("markup", "text"), PAGES, ids=range(len(PAGES)))
def test_html_becomes_what_a_reader_sees(markup: str, text: str) -> None:
    assert read_html(markup).text == text


def test_html_title_and_declared_encoding(tmp_path: Path) -> None:
    page = '<meta charset="iso-8859-1"><title> Grüße \n aus Bern </title><h1>Other</h1><p>Über</p>'
    (tmp_path / "page.html").write_bytes(page.encode("latin-1"))
    document = read_documents([tmp_path / "page.html"]).documents[0]
    assert (document.title, document.text) == ("Grüße aus Bern", "# Other\n\nÜber")
    assert read_html("<title> </title><p>x</p><h2>First\nheading</h2>").title == "First heading"
    for heading, title in (
        ("Tides<br>and boats", "Tides and boats"),
        ("<div>Tides</div><div>and <b>boats</b></div>", "Tides and boats"),
        ("H<sub>2</sub>O in 10<sup>3</sup> m<sup>2</sup>", "H₂O in 10³ m²"),
        ("<a href='x'>Tides_of_May</a> *now*", "Tides_of_May *now*"),
        ("<button>#1: why?</button>", "#1: why?"),
    ):
        content = read_html(f"<h1>{heading}</h1><p>x</p>")
        assert (content.title, content.text) == (title, f"# {title}\n\nx")


def test_raised_text_is_that_of_unicode_where_it_has_it() -> None:
    signs = {"n+1": "ⁿ⁺¹", "-3": "⁻³", "a,b": "ᵃ,ᵇ", "2n": "²ⁿ", "x": "ˣ", "*": "*", "TM": "™"}
    for text, shown in (signs | {word: word for word in ("th", "2nd", "note", "[1]", "A")}).items():
        assert raised(text) == shown and read_html(f"<p>a<sup>{text}</sup></p>").text == f"a{shown}"


def test_html_that_cannot_be_read() -> None:
    with pytest.raises(Unreadable, match="nested hundreds of levels deep"):
        read_html("<div>" * 5000 + "deep")
    with pytest.raises(Unreadable, match="character 4 is NUL"):
        read_html("<p>a\0b")


def test_code_and_rows_are_no_prose() -> None:
    """Lines of code and rows of tables are each a sentence, whatever stops they have."""
    page = f"<p>One. Two.</p><pre>{CODE}</pre><table><tr><td>No. 5. Left.<td>b</tr><tr><td>c<td>d</tr></table>"
    sentences = [sentence.text for sentence in Segmenter().sentences(read_html(page).text)]
    lines = [line.strip() for line in CODE.split("\n") if line.strip()]
    assert sentences == ["One.", "Two.", "```", *lines, "```", "| No. 5. Left. | b |", "| c | d |"]


# Each: front matter, text, title.
MARKDOWN = [
    ("", "Intro.\n\n## First *heading* with `code` ##\n", "First heading with code"),
    ("", "A title\nover two lines\n===\n\nText.\n", "A title over two lines"),
    ("", "```\n# a comment\n```\n\n# Title\n", "Title"),
    ("---\ntitle: 'From: the front'\ntags: [a, b]\n---\n", "\n# Heading\n", "From: the front"),
    ("---\r\ndate: 2026-01-01\r\n---\r\n", "# Heading\r\nText.\r\n", "Heading"),
    ("", "---\nnot: [yaml\n---\n\n# Heading\n", "Heading"),
    ("", "---\n\nText between two rules.\n\n---\n", ""),
    ("", f"```python\n{CODE}\n```\n\n| a | b |\n|---|---|\n| *c* | &amp; |\n\n- x\n    - y\n", ""),
]


@pytest.mark.parametrize(("matter", "text", "title"), MARKDOWN, ids=range(len(MARKDOWN)))
def test_markdown_is_the_file_behind_its_front_matter(matter: str, text: str, title: str) -> None:
    content = read_markdown(matter + text)
    assert (content.title, content.text) == (title, text)


def test_docx_in_reading_order() -> None:
    def fill(document) -> None:
        document.add_heading("Tides – 潮", 0)
        document.add_heading("Causes", 2)
        paragraph = document.add_paragraph("The moon ")
        paragraph.add_run("pulls").bold = True
        paragraph.add_run(" the sea. 🌊")
        for text, style in (("x", "List Bullet"), ("y", "List Bullet 2"), ("z", "List Bullet")):
            document.add_paragraph(text, style=style)
        for text in ("first", "second"):
            document.add_paragraph(text, style="List Number")
        document.add_heading("Deep", 8)
        table = document.add_table(rows=2, cols=2)
        for cell, text in zip(
            (*table.rows[0].cells, *table.rows[1].cells), ("Harbour", "High", "Alden", "4. 10."), strict=True
        ):
            cell.text = text
        row = table.add_row().cells
        row[0].merge(row[1]).text = "both"
        document.add_paragraph("Line one\nline two", style="Intense Quote")
        document.sections[0].header.paragraphs[0].text = "Running"

    content = read_docx(word_file(fill))
    assert content.title == "Tides – 潮"
    assert content.notes == ()
    assert content.text == (
        "# Tides – 潮\n\n## Causes\n\nThe moon pulls the sea. 🌊\n\n- x\n  - y\n- z\n\n1. first\n2. second\n\n"
        "###### Deep\n\n| Harbour | High |\n| Alden | 4. 10. |\n| both | both |\n\nLine one\nline two"
    )


def test_docx_notes_boxes_and_what_is_lost() -> None:
    word_xml = (
        'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:v="urn:schemas-microsoft-com:vml"'
    )
    math_xml = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'

    def fill(document) -> None:
        paragraph = document.add_paragraph("Area ")
        for inside in (
            f"<m:oMath {math_xml}><m:r><m:t>x</m:t></m:r></m:oMath>",
            f'<w:r {word_xml}><w:footnoteReference w:id="2"/></w:r>',
            f'<w:del {word_xml} w:id="9" w:author="a"><w:r><w:delText>gone</w:delText></w:r></w:del>',
            f"<w:r {word_xml}><w:pict><v:shape><v:textbox><w:txbxContent><w:p><w:r><w:t>Boxed.</w:t></w:r></w:p>"
            "</w:txbxContent></v:textbox></v:shape></w:pict></w:r>",
        ):
            paragraph._p.append(parse_xml(inside))
        document.add_paragraph("After.")

    file = io.BytesIO(word_file(fill))
    with zipfile.ZipFile(file, "a") as archive:
        note = '<w:footnote w:id="2"><w:p><w:r><w:t>A note.</w:t></w:r></w:p></w:footnote>'
        archive.writestr("word/footnotes.xml", f"<w:footnotes {word_xml}>{note}</w:footnotes>")
    content = read_docx(file.getvalue())
    assert content.text == "Area x[1]\n\nBoxed.\n\nAfter.\n\n1. A note."
    assert content.notes == ()
