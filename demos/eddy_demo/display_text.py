"""Make text of documents safe and readable for the terminal and the page."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import PurePath

_WRAPPED = 60
"""Length from which a line that continues in the next one was probably wrapped by an editor."""
_FENCES = ("```", "~~~")
_ITEM = re.compile(r" *([-*+]|\d+[.)]) ")
_PROSE = re.compile(r"(?! *([-*+]|\d+[.)]) )[^\s#>|=~]")

# Control characters become visible symbols, so that a file cannot control the user's terminal.
_SYMBOLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {127: 0x2421, 13: None}
_SYMBOLS |= {code: 0xFFFD for code in range(128, 160)}


def printable(text: str) -> str:
    """Replace control characters, except line ends and tabs."""
    return text.translate(_SYMBOLS)


def model_label(name: str) -> str:
    """Return what a model is called, also where it is named by its path."""
    path = PurePath(name)
    if not path.is_absolute():
        return name
    for part in path.parts:  # Hugging Face's cache, whose folders end in a hash
        if part.startswith("models--"):
            return part.removeprefix("models--").replace("--", "/")
    return path.name.removesuffix(".gguf")


def unwrapped(text: str) -> str:
    """Replace the line ends of hard-wrapped prose by spaces, so that the text can be wrapped again.

    The length of the text stays the same. Lines of code, list items, tables and headings keep their lines. Indentation
    inside a joined line becomes NUL characters, which the caller removes after slicing.
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
