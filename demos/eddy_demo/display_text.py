"""Text of documents as it is shown."""

from __future__ import annotations

import re
from itertools import pairwise

_WRAPPED = 60
"""A line at least this long that goes on in the next one was wrapped by an editor."""
_FENCES = ("```", "~~~")
_ITEM = re.compile(r" *([-*+]|\d+[.)]) ")
_PROSE = re.compile(r"(?! *([-*+]|\d+[.)]) )[^\s#>|=~]")

# Control characters of a document are shown as their pictures: a file cannot drive the reader's terminal.
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {127: 0x2421, 13: None}
_PICTURES |= {code: 0xFFFD for code in range(128, 160)}


def printable(text: str) -> str:
    """Text without control characters, save line ends and tabs."""
    return text.translate(_PICTURES)


def unwrapped(text: str) -> str:
    """Text of the same length, in which the line ends of hard-wrapped prose are spaces, so that it wraps anew.

    Lines of code, list items, tables and headings keep their own lines. Indentation that falls into a line becomes NUL
    characters, to be removed once the text has been sliced.
    """
    lines = text.split("\n")
    fenced = listed = False
    out = [lines[0]]
    for at, (before, line) in enumerate(pairwise(lines)):
        fenced ^= before.lstrip().startswith(_FENCES)
        listed = bool(_ITEM.match(before)) or (listed and before.startswith(" "))
        indent = len(line) - len(line.lstrip(" ")) if listed else 0
        # A passage may begin in the middle of a line: its first line is short then.
        wrapped = len(before) >= _WRAPPED or (at == 0 and before[-1:].isalnum())
        joins = not fenced and wrapped and _PROSE.match(line, indent) and not before.startswith("#")
        out += [" " + "\0" * indent if joins else "\n" + line[:indent], line[indent:]]
    return "".join(out)
