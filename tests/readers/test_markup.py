"""HTML, Markdown and Word files become what a reader sees, in the shape of Markdown."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.readers.word_files import raw_word, word_file

from eddy_embed import Segmenter
from readers_eddy.markup import read_html, read_markdown
from readers_eddy.office.word import read_docx
from readers_eddy.scripts import raised

CODE = "def f(x):\n    # Twice. Not more.\n    return  2 * x\n\n\nprint(f(1))"

# Each pair: markup, and what a reader sees of it.
PAGES = [
    ("<p>One</p><p>Two <b>bold</b>\n  words</p>a<br>\n b", "One\n\nTwo bold words\n\na\nb"),
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
    ("<title>T</title><header><h1>Boats</h1></header><section><p>One</section>", "# Boats\n\nOne"),
    ("<header><h1>Boats</h1>Ours</header><main>One</main><div role=main>Two</div>", "# Boats\n\nOne\n\nTwo"),
    ("<frameset><frame src=a></frameset><noframes><p>One</p></noframes>", "One"),
    ("<p><del>10</del> <s>9</s> 8<iframe srcdoc='<p>One</p>'></iframe><iframe>old</iframe>", "~~10~~ ~~9~~ 8\n\nOne"),
    # Marks of lists, and what is chosen and filled in.
    ("<ol type=a start=26><li>x<li>y</ol>", "z. x\naa. y"),
    ("<ol reversed><li>x<li>y</ol><ol style='list-style: upper-roman'><li value=9>z</ol>", "2. x\n1. y\n\nIX. z"),
    ("<ul><li><input type=checkbox checked> oil<li><input type=radio> tar</ul>", "- ☒ oil\n- ☐ tar"),
    ("Size <select><option>S<option selected>M</select> <input type=submit value=Go><input value=Ada>", "Size M Ada"),
    # Tables and headings that only roles say, readings of signs, fractions of raised and lowered digits.
    (
        "<div role=grid><div role=row><div role=columnheader>A</div><div role=columnheader>B</div></div>"
        "<div role=row><span role=cell>1</span><span role=cell>2</span></div></div>",
        "| A | B |\n| 1 | 2 |",
    ),
    ("<div role=heading aria-level=3>Tides</div><h2><img alt=x></h2>", "### Tides"),
    ("<ruby>港<rt>みなと</rt></ruby> <ruby>海<rp>[</rp><rt>うみ</rt><rp>]</rp></ruby>", "港(みなと) 海(うみ)"),
    ("3<sup>1</sup>&frasl;<sub>4</sub> cups, <sup>1</sup>/<sub>2</sub>", "3 1/4 cups, 1/2"),
    ("<table><tr><td>1<td rowspan=0>x<tr><td>2<caption>C</table>", "C\n\n| 1 | x |\n| 2 | x |"),
    # Code beside its line numbers.
    (f"<table><tr><td><pre>1\n2\n3\n4\n5\n6</pre><td><pre>{CODE}</pre></table>", f"```\n{CODE}\n```"),
    ("<pre><span class=lineno>1 </span>if x:\n<span class=lineno>2 </span>    y</pre>", "```\nif x:\n    y\n```"),
    # What the page's own styles hide, unless another of their rules shows it.
    (
        "<style>.a, p#b { display: none } .c{display:none} li .c{display:block} @media print{.d{display:none}}</style>"
        "<p class=a>no<p id=b>no<p class=c>c<p class=d>d",
        "c\n\nd",
    ),
    ("no markup at all", "no markup at all"),
    # What scripts, buttons and styles show or hide, cells that span, links behind headings.
    ("<p>Name</p><div><button>Send</button></div>har&shy;bour", "Name\n\nharbour"),
    (
        "<table><tr><th colspan=2>Boat<th>Price<tr><td>Red<td>a<td rowspan=2>5<tr><td>Blue<td>b</table>",
        "| Boat | Boat | Price |\n| Red | a | 5 |\n| Blue | b | 5 |",
    ),
    ("<x-card><template shadowrootmode=open><p>Shadow.</template></x-card><template>no</template>", "Shadow."),
    ('<p>Seen.<p hidden>a<p style="display: none">b<p style="visibility:hidden">c<dialog>d</dialog>', "Seen."),
    ('<div hidden id="S:0"><p>The article.</div>', "The article."),
    ('<h2>Tides <a href="#t">¶</a></h2><h3>Moon<span>[edit]</span></h3>', "## Tides\n\n### Moon"),
    # Formulas in TeX, which are read once.
    (
        'So <span class="MathJax_Preview">[x]</span><script type="math/tex">x &lt; 5</script> or '
        "<img class=latex alt='x^2'>, not <img alt=y>.",
        "So x < 5 or x^2, not .",
    ),
]


# Each: MathML; the same in Word, "" where it has no other form; its linear form.
X, Y, TWO, SUM = "<mi>x</mi>", "<mi>y</mi>", "<mn>2</mn>", "<mrow><mi>x</mi><mo>+</mo><mi>y</mi></mrow>"
_R = "<m:r><m:t>{}</m:t></m:r>".format
_E = f"<m:e>{_R('{}')}</m:e>".format
_X = _E("x")
FORMULAS = [
    (f"<mn>3</mn><mfrac>{TWO}<mn>5</mn></mfrac>", "", "3 2/5"),
    (
        f"<mfrac>{SUM}<mrow>{TWO}{X}</mrow></mfrac><mo>=</mo>{Y}",
        f"<m:f><m:num>{_R('x+y')}</m:num><m:den>{_R('2x')}</m:den></m:f>{_R('=y')}",
        "(x+y)/(2x)=y",
    ),
    (f"<msqrt>{X}{Y}</msqrt>", f"<m:rad><m:deg/>{_E('xy')}</m:rad>", "√(xy)"),
    (f"<mroot>{X}<mn>3</mn></mroot>", f"<m:rad><m:deg>{_R('3')}</m:deg>{_X}</m:rad>", "∛x"),
    (f"<msup><mrow><mo>(</mo>{SUM}<mo>)</mo></mrow>{TWO}</msup>", "", "(x+y)²"),
    (f"<msup>{X}<mrow>{X}{Y}</mrow></msup>{Y}", "", "x^(xy) y"),
    (f"<msub>{X}{Y}</msub>", f"<m:sSub>{_X}<m:sub>{_R('y')}</m:sub></m:sSub>", "x_y"),
    (
        f"<munderover><mo>∑</mo>{SUM}{TWO}</munderover>{X}",
        f"<m:nary><m:naryPr><m:chr m:val='∑'/></m:naryPr><m:sub>{_R('x+y')}</m:sub>"
        f"<m:sup>{_R('2')}</m:sup>{_X}</m:nary>",
        "∑_(x+y)² x",
    ),
    (
        f"<mo>[</mo><mtable><mtr><mtd>{X}</mtd><mtd>{Y}</mtd></mtr><mtr><mtd>{TWO}</mtd></mtr></mtable><mo>]</mo>",
        "<m:d><m:dPr><m:begChr m:val='['/><m:endChr m:val=']'/></m:dPr><m:e><m:m>"
        f"<m:mr>{_X}{_E('y')}</m:mr><m:mr>{_E('2')}</m:mr></m:m></m:e></m:d>",
        "[x y; 2]",
    ),
    (f"<mover>{X}<mo>^</mo></mover>", f"<m:acc>{_X}</m:acc>", "x\u0302"),
    (f"<mi>sin</mi><mo>&#x2061;</mo>{X}", f"<m:func><m:fName>{_R('sin')}</m:fName>{_X}</m:func>", "sin x"),
    (f"<mfenced open='{{'>{X}{Y}</mfenced>", "", "{x,y)"),
    (f"<mfrac linethickness='0'>{X}{Y}</mfrac>", "", "x¦y"),
    (f"<mmultiscripts>{X}<mprescripts/>{TWO}<mn>4</mn></mmultiscripts>", "", "₂⁴x"),
    (f"<semantics>{X}<annotation>tex</annotation></semantics>", "", "x"),
]


@pytest.mark.parametrize(("mathml", "omml", "text"), FORMULAS, ids=[text for *_, text in FORMULAS])
def test_formulas_are_written_in_one_line(mathml: str, omml: str, text: str) -> None:
    for page in (
        "{}",
        '<span style="display:none">{}</span><img alt="again">',
        '<mjx-container><mjx-math aria-hidden="true">again</mjx-math><span>{}</span></mjx-container>',
    ):
        assert read_html(f"<p>So <span>{page.format(f'<math>{mathml}</math>')}</span>.").text == f"So {text}."
    if omml:
        assert read_docx(raw_word(f"<w:p><m:oMath>{omml}</m:oMath></w:p>")).text == text


@pytest.mark.parametrize(("markup", "text"), PAGES, ids=range(len(PAGES)))
def test_html_becomes_what_a_reader_sees(markup: str, text: str) -> None:
    assert read_html(markup).text == text


def test_raised_text_is_that_of_unicode_where_it_has_it() -> None:
    signs = {"n+1": "ⁿ⁺¹", "-3": "⁻³", "a,b": "ᵃ,ᵇ", "2n": "²ⁿ", "x": "ˣ", "*": "*", "TM": "™"}
    for text, shown in (signs | {word: word for word in ("th", "2nd", "note", "[1]", "A")}).items():
        assert raised(text) == shown and read_html(f"<p>a<sup>{text}</sup></p>").text == f"a{shown}"


def test_code_and_rows_are_no_prose() -> None:
    """Lines of code and rows of tables are each a sentence, whatever stops they have."""
    page = f"<p>One. Two.</p><pre>{CODE}</pre><table><tr><td>No. 5. Left.<td>b</tr><tr><td>c<td>d</tr></table>"
    sentences = [sentence.text for sentence in Segmenter().sentences(read_html(page).text)]
    lines = [line.strip() for line in CODE.split("\n") if line.strip()]
    assert sentences == ["One.", "Two.", "```", *lines, "```", "| No. 5. Left. | b |", "| c | d |"]


ALIASES = "".join(f"  - &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in pairwise("abcdefgh"))
HEADING = "# Heading\n"
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
    *(
        (f"---\n{matter}\n---\n", HEADING, title)
        for matter, title in (
            *((f"title: {value}", "Heading") for value in ("[a, b]", "{a: b}", "~", "")),
            (f"lists:\n  - &a [ha, ha]\n{ALIASES}title: *h", "Heading"),
            (f"title:\n  - &a [ha, ha]\n{ALIASES}", "Heading"),
            ("? [title]\n: Odd", "Heading"),
            ("base: &t Given once\ntitle: *t", "Given once"),
            ("title: !unknown Tagged", "Tagged"),
            ("title: 2026-01-01", "2026-01-01"),
        )
    ),
]


@pytest.mark.parametrize(("matter", "text", "title"), MARKDOWN, ids=range(len(MARKDOWN)))
def test_markdown_is_the_file_behind_its_front_matter(matter: str, text: str, title: str) -> None:
    content = read_markdown(matter + text)
    assert (content.title, content.text, content.notes) == (title, text, ())


def test_deep_front_matter_stays_in_the_text() -> None:
    for opening in ("[", "{a: ", "- "):
        text = f"---\ntitle: T\nlist:\n {opening * 1_000}\n---\n{HEADING}"
        content = read_markdown(text)
        assert (content.title, content.text) == ("Heading", text)
        assert content.notes == ("its front matter stays in the text: it is nested hundreds of levels deep",)


def test_docx_in_reading_order() -> None:
    def fill(document) -> None:
        document.sections[0].header.paragraphs[0].text = "Running"
        document.add_heading("Tides – 潮", 0)
        document.add_heading("Causes", 2)
        paragraph = document.add_paragraph("The moon ")
        paragraph.add_run("pulls").bold = True
        paragraph.add_run(" the sea. 🌊")
        lists = (("List Bullet", "x"), ("List Bullet 2", "y"), ("List Bullet", "z"), ("List Number", "first"))
        for style, text in (*lists, ("List Number", "second"), ("Heading 8", "Deep")):
            document.add_paragraph(text, style=style)
        table = document.add_table(rows=3, cols=2)
        for row, texts in zip(table.rows, (("Harbour", "High"), ("Alden", "4. 10."), ("both", "")), strict=True):
            for cell, text in zip(row.cells, texts, strict=True):
                cell.text = text
        table.cell(2, 0).merge(table.cell(2, 1))
        document.add_paragraph("Line one\nline two", style="Intense Quote")

    content = read_docx(word_file(fill))
    assert (content.title, content.notes) == ("Tides – 潮", ())
    assert content.text == (
        "# Tides – 潮\n\n## Causes\n\nThe moon pulls the sea. 🌊\n\n- x\n  - y\n- z\n\n1. first\n2. second\n\n"
        "###### Deep\n\n| Harbour | High |\n| Alden | 4. 10. |\n| both | both |\n\nLine one\nline two"
    )


def test_docx_notes_boxes_and_what_is_lost() -> None:
    boxed = "<w:txbxContent><w:p><w:r><w:t>Boxed.</w:t></w:r></w:p></w:txbxContent>"
    body = (
        "<w:p><w:r><w:t xml:space='preserve'>Area </w:t></w:r><m:oMath><m:r><m:t>x</m:t></m:r></m:oMath>"
        "<w:r><w:footnoteReference w:id='2'/></w:r>"
        "<w:del w:id='9' w:author='a'><w:r><w:delText>gone</w:delText></w:r></w:del>"
        f"<w:r><w:pict><v:shape xmlns:v='urn:schemas-microsoft-com:vml'><v:textbox>{boxed}</v:textbox></v:shape>"
        f"</w:pict></w:r></w:p>{line('After.')}"
    )
    note = f"<w:footnote w:id='2'>{line('A note.')}</w:footnote>"
    for strict in (False, True):
        content = read_docx(raw_word(body, footnotes=note, strict=strict))
        assert (content.text, content.notes) == ("Area x[1]\n\nBoxed.\n\nAfter.\n\n1. A note.", ())


def level(number: int, kind: str, text: str, more: str = "") -> str:
    return f'<w:lvl w:ilvl="{number}"><w:numFmt w:val="{kind}"/>{more}<w:lvlText w:val="{text}"/></w:lvl>'


NUMBERING = (
    f"<w:abstractNum w:abstractNumId='0'>{level(0, 'decimal', '%1.')}{level(1, 'lowerLetter', '(%2)')}</w:abstractNum>"
    f"<w:abstractNum w:abstractNumId='1'>{level(0, 'upperRoman', 'Part %1', '<w:start w:val=&quot;4&quot;/>')}"
    f"{level(1, 'decimal', '%1.%2', '<w:isLgl/>')}</w:abstractNum>"
    f"<w:abstractNum w:abstractNumId='2'>{level(0, 'bullet', '•')}</w:abstractNum>"
    "<w:num w:numId='1'><w:abstractNumId w:val='0'/></w:num><w:num w:numId='3'><w:abstractNumId w:val='1'/></w:num>"
    "<w:num w:numId='4'><w:abstractNumId w:val='2'/></w:num><w:num w:numId='2'><w:abstractNumId w:val='0'/>"
    "<w:lvlOverride w:ilvl='0'><w:startOverride w:val='1'/></w:lvlOverride></w:num>"
).replace("&quot;", "'")
STYLES = (
    "<w:style w:type='paragraph' w:styleId='H'><w:name w:val='heading 1'/><w:pPr><w:numPr><w:numId w:val='3'/>"
    "</w:numPr></w:pPr></w:style>"
    "<w:style w:type='paragraph' w:styleId='Mine'><w:name w:val='Mine'/><w:basedOn w:val='H'/></w:style>"
    "<w:style w:type='paragraph' w:styleId='C'><w:name w:val='Source Code'/></w:style>"
    "<w:style w:type='character' w:styleId='S'><w:name w:val='S'/><w:rPr><w:vanish/></w:rPr></w:style>"
)


def line(text: str, properties: str = "", run: str = "") -> str:
    return (
        f'<w:p><w:pPr>{properties}</w:pPr><w:r><w:rPr>{run}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r></w:p>'
    )


def item(text: str, number: int, level: int = 0) -> str:
    return line(text, f"<w:numPr><w:ilvl w:val='{level}'/><w:numId w:val='{number}'/></w:numPr>")


def field(instruction: str, result: str = "", data: str = "") -> str:
    marks = [f"<w:fldChar w:fldCharType='{kind}'>{data}</w:fldChar>" for kind in ("begin", "separate", "end")]
    return f"<w:r>{marks[0]}<w:instrText>{instruction}</w:instrText>{marks[1]}<w:t>{result}</w:t>{marks[2]}</w:r>"


def tall(text: str, merge: str) -> str:
    """A cell that begins or goes on over rows."""
    return f"<w:tc><w:tcPr><w:vMerge w:val='{merge}'/></w:tcPr>{line(text)}</w:tc>"


MINE = "<w:pStyle w:val='Mine'/>"
SOURCE, COURIER = "<w:pStyle w:val='C'/>", "<w:rFonts w:ascii='Courier New'/>"
CELL = f"<w:tc>{line('a')}</w:tc>"
CELLS = f"{CELL}<w:tc>{line('b')}</w:tc>"
CHECKED = "<w:ffData><w:checkBox><w:checked/></w:checkBox></w:ffData>"
CHOICE = (
    "<w:ffData><w:ddList><w:result w:val='1'/><w:listEntry w:val='S'/><w:listEntry w:val='M'/></w:ddList></w:ffData>"
)
WORD = {
    "a list that is interrupted": (
        f"{item('a', 1)}{item('b', 1, 1)}{item('c', 1, 1)}{line('Rest.')}{item('d', 1)}{item('e', 1, 1)}{item('f', 2)}",
        "1. a\n   (a) b\n   (b) c\n\nRest.\n\n2. d\n   (a) e\n1. f",
    ),
    "labels with words, bullets": (item("a", 3) + item("b", 3, 1) + item("c", 4), "Part IV a\n        4.1 b\n\n- c"),
    "numbered headings by style": (line("a", MINE) + line("t") + line("b", MINE), "# Part IV a\n\nt\n\n# Part V b"),
    "headings by outline level": (
        line("a", "<w:outlineLvl w:val='1'/>") + line("b", "<w:outlineLvl w:val='9'/>"),
        "## a\n\nb",
    ),
    "code": (
        f"{line('if x:', SOURCE)}{line('    y', SOURCE)}{line('')}{line('  z', '', COURIER)}{line('')}",
        "```\nif x:\n    y\n\n  z\n```",
    ),
    "hidden and raised text": (
        f"""{line("a")}{line("no", "", "<w:rStyle w:val='S'/>")}{line("b", "", "<w:vanish w:val='0'/>")}"""
        + line("2", "", "<w:vertAlign w:val='superscript'/>"),
        "a\n\nb\n\n²",
    ),
    "merged cells": (
        f"<w:tbl><w:tr>{tall('Bay', 'restart')}{CELL}</w:tr><w:tr>{tall('', 'continue')}{CELL}</w:tr></w:tbl>",
        "| Bay | a |\n| Bay | a |",
    ),
    "hidden rows, gaps before cells": (
        f"<w:tbl><w:tr><w:trPr><w:hidden/></w:trPr>{CELLS}</w:tr><w:tr>{CELLS}{CELLS}</w:tr>"
        f"<w:tr><w:trPr><w:gridBefore w:val='2'/></w:trPr>{CELLS}</w:tr></w:tbl>",
        "| a | b | a | b |\n|  |  | a | b |",
    ),
    "fields in fields": (
        f"<w:p>{field('IF ' + field('X', 'no').replace('<w:r>', '').replace('</w:r>', ''), 'yes')}</w:p>",
        "yes",
    ),
    "a simple field": ("<w:p><w:fldSimple w:instr='DATE'><w:r><w:t>2026</w:t></w:r></w:fldSimple></w:p>", "2026"),
    "a field without an end": (
        "<w:p><w:r><w:fldChar w:fldCharType='begin'/><w:t>a</w:t></w:r></w:p>" + line("b"),
        "a\n\nb",
    ),
    "forms": (f"<w:p>{field('', '', CHECKED)}{field('', '', CHOICE)}</w:p>", "☒M"),
    "readings, line ends": (
        "<w:p><w:r><w:ruby><w:rt><w:r><w:t>うみ</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>海</w:t></w:r></w:rubyBase></w:ruby>"
        "</w:r><w:r><w:cr/><w:t>b</w:t></w:r></w:p>",
        "海(うみ)\nb",
    ),
}


@pytest.mark.parametrize(("body", "text"), WORD.values(), ids=WORD)
def test_word_files_are_read_as_word_shows_them(body: str, text: str) -> None:
    for strict in (False, True):
        assert read_docx(raw_word(body, STYLES, NUMBERING, strict)).text == text


def test_hidden_text_of_word_files_is_counted() -> None:
    for kind, count in (("hidden and raised text", "hidden texts"), ("hidden rows, gaps before cells", "hidden rows")):
        assert read_docx(raw_word(WORD[kind][0], STYLES)).notes == (f"{count} are left out (1)",)
