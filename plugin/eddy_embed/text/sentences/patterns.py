"""Character classes and expressions that the rules share."""

from __future__ import annotations

import re
from collections.abc import Iterable

SURROGATE = re.compile("[\ud800-\udfff]")

INVISIBLE = "\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
"""Soft hyphen, zero-width and direction marks: not whitespace to Python, and nothing to see."""

VISIBLE = re.compile(rf"[^\s\x00-\x1f\x7f-\x9f\ufe00-\ufe0f{INVISIBLE}]")

CJK = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003134f"

QUOTES_CLOSED = "\"'”’“‘»«›‹」』〉》〟"
"""Marks that close a quotation when they follow a stop directly: German closes with “, and with « as well."""

CLOSERS = rf"\"'”’“‘»«›‹」』〉》〟)\]}}）］｝】〕*_~`{INVISIBLE}"

OPENERS = rf"\"'“”„‚‘’«»‹›「『〈《〝(\[{{（［｛【〔¿¡*_~`–—\-{INVISIBLE}"

STRONG = "!?‼‽⁇⁈⁉"
"""Stops that end a sentence whatever the word before them is."""

_EXTRA_STOPS = "།༎។៕"
GREEK_QUESTION = ";\u037e"
"""What ends a question in Greek, after a Greek letter."""

_NOTE = r"\d{1,3}(?:[,–-][ \xa0]?\d{1,3})*"
_EMOJI = "\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff\U0001f3fb-\U0001f3ff\ufe0f\u200d\u20e3"

NEXT = re.compile(rf"[\s{OPENERS}]*")
WORD = re.compile(r"[^\W_]+")
ALNUM = re.compile(r"[^\W_]")
CJK_CHARACTER = re.compile(f"[{CJK}]")


def wide_stops(inventory: Iterable[str]) -> str:
    """The stops that need no space after them: spaCy's of all scripts but Latin."""
    return "".join(sorted((set(inventory) | set(_EXTRA_STOPS)) - set(STRONG + ".…")))


def candidates(wide: str) -> re.Pattern[str]:
    """Compile the expression for a run of stops with everything that closes with it.

    Group ``run`` is the stops alone, ``note`` the digits of a footnote. Brackets, quotes, further stops, footnote
    marks, a quotation mark between spaces as in French, and emoji before the next space belong to the sentence that the
    stop ends.
    """
    stops = re.escape(wide + STRONG) + ".…"
    return re.compile(
        rf"(?P<run>\.(?:[ \xa0]\.){{2,}}|[{stops}]+|(?<=[\u0370-\u03ff\u1f00-\u1fff])[{GREEK_QUESTION}])"
        rf"(?:[{CLOSERS}{stops}]|\[{_NOTE}\]|[¹²³⁰⁴-⁹])*"
        rf"(?P<note>(?:(?<=[^\W\d_][.!?…])|(?<=[.!?…][\"'”’»)]))\d{{1,3}}(?:[,–-]\d{{1,3}})*(?=\s))?"
        rf"(?:[ \xa0\u202f][»›](?=[\s.,;:!?)\]]|$)|[ ]\"(?=\s|$))?"
        rf"(?:(?:[ \xa0]?[{_EMOJI}])+(?=\s|$))?"
    )
