"""HTML, Markdown, text, tables, notebooks and e-mails, and the text that a reader sees."""

from __future__ import annotations

import json

from tests.readers.corpus import Sample

CHARSETS = {
    "latin1 is windows-1252": (b'<meta charset="iso-8859-1"><p>\x93Smart\x94 5 \x80', "“Smart” 5 €"),
    "the mark before the label": (b'\xef\xbb\xbf<meta charset="iso-8859-1"><p>caf\xc3\xa9', "café"),
    "no utf-16 in a label": (b'<meta charset="utf-16"><p>caf\xc3\xa9', "café"),
    "a label in a comment": (b'<!-- <meta charset="windows-1251"> --><p>caf\xc3\xa9', "café"),
    "gb2312 is GBK": ("<meta charset=gb2312><p>镕基".encode("gbk"), "镕基"),
    "utf-16 with a mark": ("<p>Tides é".encode("utf-16"), "Tides é"),
}
HTML = {
    "a title": ("<title> Grüße \n aus Bern </title><h1>Other</h1><p>Über</p>", "Grüße aus Bern", "# Other\n\nÜber"),
    "a heading for a title": ("<title> </title><p>x</p><h2>First\none</h2>", "First one", "x\n\n## First one"),
    **{
        f"a title of {title}": (f"<h1>{heading}</h1><p>x</p>", title, f"# {title}\n\nx")
        for heading, title in (
            ("Tides<br>and boats", "Tides and boats"),
            ("<div>Tides</div><div>of <b>May</b></div>", "Tides of May"),
            ("H<sub>2</sub>O in 10<sup>3</sup> m<sup>2</sup>", "H₂O in 10³ m²"),
            ("<a href='x'>Tides_of_May</a> *now*", "Tides_of_May *now*"),
            ("<button>#1: why?</button>", "#1: why?"),
        )
    },
}
FLOATS = [
    f"\n{head}\n\n{text}\n\nAda Berg   [Page {n}]\n"
    for n, (head, text) in enumerate(
        (
            ("", "  A float that hears\n  nothing for long is"),
            ("RFN 12   Floats", "  lost.\n\nChapter 1"),
            ("RFN 12   Floats", "  Then:\nit sinks."),
        ),
        start=1,
    )
]
FEET = "".join(FLOATS).replace("\n", "\r\n")
FLOATS_TEXT = "  A float that hears\n  nothing for long is\n  lost.\n\nChapter 1\n\n  Then:\nit sinks."
FLOATS_NOTE = "page numbers and running heads are left out: “Ada Berg [Page #]”, “RFN # Floats”"
EXACT = "Zeile eins.\r\nZeile zwei – mit Strich.\u2028\tEnde. 🌊\n"
CHAPTERS = "\f".join(f"Chapter {n}\n\nText {'x' * n}." for n in range(1, 4))
ROWS = "\f".join(f"Eel {n}\n\nCod {n * 3}\nRay {n}" for n in range(1, 5))
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'7b' * 32}\nsize 1234\n"
LFS = "a Git LFS pointer, not the document: run `git lfs pull` in its folder and read it again"
OUTPUTS = [
    {"output_type": "stream", "text": ["2\n"]},
    {"data": {"text/html": "<table><tr><th>a<th>b<tr><td>1<td>2</table>", "text/plain": "a b"}},
    {"data": {"image/png": "iVBO", "text/plain": "<Figure>"}},
    {"output_type": "error", "traceback": ["\x1b[31mKeyError\x1b[0m", "'x'"]},
]
CELLS = [
    {"cell_type": "markdown", "source": ["# Tides\n", "\n", "They *rise*."]},
    {"cell_type": "code", "source": "print(2)\ntable", "outputs": OUTPUTS},
]
NOTEBOOK = {"nbformat": 4, "metadata": {"kernelspec": {"language": "python"}}, "cells": CELLS}
MAIL = """From: =?utf-8?q?J=C3=BCrgen?= <j@example.org>
To: crew@example.org
Subject: The
 ferry
Received: from elsewhere
MIME-Version: 1.0
"""
PLAIN = """Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: quoted-printable

=93Six=94 =3D 6.
"""


def multipart(kind: str, *parts: str) -> str:
    mark = kind[0]
    inside = "".join(f"--{mark}\n{part}\n" for part in parts)
    return f"Content-Type: multipart/{kind}; boundary={mark}\n\n{inside}--{mark}--\n"


PART = "Content-Type: {}\nContent-Disposition: {}\n\nx"
PAGE = "Content-Type: text/html\n\n"
VERSIONS = multipart("alternative", PLAIN, f'{PAGE}<p style="display:none">Preview<p>It <b>leaves</b> at six.')
MIXED = multipart("mixed", VERSIONS, PART.format("application/pdf", "attachment; filename=map.pdf"))
FORWARDED = f"Content-Type: message/rfc822\n\nFrom: Cleo <c@example.org>\n{PLAIN}"
BODIES = {
    "quoted-printable": (PLAIN, "“Six” = 6."),
    "another one forwarded": (
        multipart("mixed", "\nSee below.", FORWARDED),
        "See below.\n\nForwarded:\n\nFrom: Cleo <c@example.org>\n\n“Six” = 6.",
    ),
    **{
        f"{kind} in the text": (multipart("mixed", "\nOne.", part, "\nTwo."), f"One.\n\n{text}Two.")
        for kind, part, text in (
            ("a picture", PART.format("image/png", "inline; filename=a.png"), ""),
            ("an attached page", PART.format("text/html; name=a.html", "attachment"), ""),
            ("a page", f"{PAGE}<p>Here.", "Here.\n\n"),
        )
    },
    "a label in a page": ("Content-Type: text/html\n\n<meta charset=iso-8859-1><p>Caf\xe9", "Café"),
    "a version without text": (multipart("alternative", "\nPlain.", PAGE), "Plain."),
}
SHOWN = "From: Jürgen <j@example.org>\nTo: crew@example.org\nSubject: The ferry"
UNLABELLED = "Content-Type: text/plain{}\nContent-Transfer-Encoding: 8bit\n\nCaf\xe9"
UNDECODED = "not UTF-8: byte 0x{} at position {} cannot be decoded; convert it first"
TEXT_FILES = {
    **{f"html: {kind}": Sample(".html", page, text) for kind, (page, text) in CHARSETS.items()},
    **{f"html: {kind}": Sample(".html", page.encode(), text, title) for kind, (page, title, text) in HTML.items()},
    **{
        f"html: a charset {name:.9}": Sample(".html", b'<meta charset="%b">\xfc' % name.encode(), reason="not UTF-8")
        for name in ("undefined", "idna", "zip", "klingon", "k" * 500)
    },
    "html: a NUL": Sample(".html", b"<p>a\0b", reason="character 4 is NUL"),
    "text: as it is": Sample(".txt", b"\xef\xbb\xbf" + EXACT.encode(), EXACT),
    "text: utf-16 with a mark": Sample(".txt", "Notepad – é.".encode("utf-16"), "Notepad – é."),
    "text: page heads": Sample(".txt", "\f".join(FLOATS).encode(), FLOATS_TEXT, notes=(FLOATS_NOTE,)),
    "text: page feet": Sample(".txt", FEET.encode(), FLOATS_TEXT, notes=(FLOATS_NOTE,)),
    "text: chapters on pages": Sample(".txt", CHAPTERS.encode(), CHAPTERS),
    "text: rows on pages": Sample(".txt", ROWS.encode(), ROWS),
    "text: empty": Sample(".txt", b"", reason="empty"),
    "text: latin1": Sample(".txt", "Grüße".encode("latin-1"), reason=UNDECODED.format("fc", 2)),
    "text: utf-16 without a mark": Sample(".txt", "plain".encode("utf-16-le"), reason="character 1 is NUL"),
    "markdown: front matter": Sample(".md", b"---\ntitle: T\n---\n# Tides\n", "# Tides\n", "T"),
    "markdown: blank": Sample(".md", b" \n\t\n", reason="blank"),
    "markdown: about pointers": Sample(".md", f"It is:\n\n{POINTER}".encode(), f"It is:\n\n{POINTER}"),
    **{
        f"a pointer for {suffix}": Sample(suffix, POINTER.encode(), reason=LFS)
        for suffix in (".md", ".txt", ".pdf", ".docx", ".csv", ".jsonl", ".jsonl.gz")
    },
    "rows: no archive": Sample(".jsonl.gz", b"\x1f\x8b\x08garbage", reason="Compressed file ended"),
    "csv: quotes": Sample(".csv", b'a,b\r\n"1,5","two\r\nlines"\r\n,\r\n', "| a | b |\n| 1,5 | two lines |"),
    "csv: semicolons": Sample(".csv", "sep=;\r\nPreis;1,5\r\n".encode("utf-8-sig"), "| Preis | 1,5 |"),
    "csv: tabs": Sample(".tsv", b"a\tb, c\n1\t2, 3\n", "| a | b, c |\n| 1 | 2, 3 |"),
    "csv: short rows": Sample(".csv", b"Boat,Crew\nRed\nBlue,3\n", "| Boat | Crew |\n| Red |  |\n| Blue | 3 |"),
    "csv: no table": Sample(".csv", b"Name\nFerry, the red\nBoat\n", "Name\nFerry, the red\nBoat"),
    "notebook: cells and results": Sample(
        ".ipynb",
        json.dumps(NOTEBOOK).encode(),
        "# Tides\n\nThey *rise*.\n\n```python\nprint(2)\ntable\n```\n\n```\n2\n```\n\n| a | b |\n| 1 | 2 |\n\n"
        "```\n<Figure>\n```\n\n```\nKeyError\n'x'\n```",
        "Tides",
        (),
    ),
    "notebook: an older one": Sample(".ipynb", b'{"worksheets": []}', reason="no notebook of format 4"),
    "notebook: deep": Sample(".ipynb", b"[" * 200_000, reason="its JSON is nested hundreds of levels deep"),
    **{
        f"mail: {kind}": Sample(".eml", (MAIL + body).encode("latin-1"), f"{SHOWN}\n\n{text}")
        for kind, (body, text) in BODIES.items()
    },
    "mail: two versions, an attachment": Sample(
        ".eml",
        (MAIL + MIXED).encode(),
        f"{SHOWN}\n\nIt leaves at six.",
        "The ferry",
        ("attachments are not read: map.pdf", "1 elements that a browser hides are left out"),
    ),
    **{
        f"mail: not in {label or 'no charset'}": Sample(
            ".eml", (MAIL + UNLABELLED.format(label)).encode("latin-1"), reason=UNDECODED.format("e9", 3)
        )
        for label in ("", "; charset=us-ascii")
    },
    "mail: none": Sample(".eml", b"Some text.", reason="no e-mail"),
    "mail: an unknown charset": Sample(
        ".eml", (MAIL + PLAIN).replace("iso-8859-1", "klingon").encode(), reason="its charset 'klingon' is not known"
    ),
}
