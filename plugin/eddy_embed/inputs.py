"""What a caller hands over, checked before anything runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from numbers import Integral
from typing import TYPE_CHECKING, Any, get_args

from eddy_embed.document import Part
from eddy_embed.errors import InvalidParameter, InvalidText
from eddy_embed.plan import Overflow
from eddy_embed.tokens import raise_on_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PARTS: tuple[Part, ...] = get_args(Part)
"""The parts of a document that have vectors."""
PASSAGES: tuple[Part, ...] = ("passages",)
CHUNK_CHARACTERS = 4_000_000
"""Characters of text planned at once: enough to sort by length, little enough to hold."""


def check_options(overflow: Any, normalize: Any, instructions: Mapping[str, Any]) -> None:
    """Refuse options of another kind.

    Raises:
        InvalidParameter: With the option, its value and the choices.
    """
    if overflow not in get_args(Overflow):
        raise InvalidParameter(f"overflow={overflow!r} is unknown; choose one of {', '.join(get_args(Overflow))}")
    if not isinstance(normalize, bool):
        raise InvalidParameter(f"normalize={normalize!r} must be True or False")
    for name, instruction in instructions.items():
        if instruction is None:
            continue
        if not isinstance(instruction, str):
            raise InvalidParameter(f"{name}={instruction!r} must be a string, or None for none")
        raise_on_surrogates(instruction, name)


def check_parts(parts: Any) -> None:
    """Refuse what names no part of a document.

    Raises:
        InvalidParameter: With the choices.
    """
    if isinstance(parts, str) or not isinstance(parts, Collection) or not parts or not set(parts) <= set(PARTS):
        raise InvalidParameter(
            f"parts={parts!r} must hold one or more of {', '.join(PARTS)}, as in parts=('passages',)"
        )


def check_count(name: str, value: Any, *, optional: bool = False) -> None:
    """Refuse what is no whole number of at least 1.

    Raises:
        InvalidParameter: With the option and its value.
    """
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InvalidParameter(f"{name}={value!r} must be a whole number of at least 1{', or None' * optional}")


def checked_texts(texts: str | Iterable[str], *, blank: bool = False) -> list[str]:
    """The texts as a list.

    Args:
        texts: One text or several.
        blank: Whether blank texts may be among them.

    Raises:
        InvalidText: One of them is no string, blank, or not valid Unicode; the message gives its index.
    """
    if isinstance(texts, bytes | bytearray) or not isinstance(texts, Iterable):
        raise InvalidText(f"expected a string or several strings, not {texts!r:.60}")
    given = [texts] if isinstance(texts, str) else list(texts)
    for index, text in enumerate(given):
        if not isinstance(text, str):
            raise InvalidText(f"text {index} is a {type(text).__name__}, not a string: {text!r:.60}")
        if not blank and not text.strip():
            raise InvalidText(f"text {index} is {'blank' if text else 'empty'} ({text!r:.40}); drop it first")
        if not text.isascii():
            raise_on_surrogates(text, f"text {index}")
    return given


def checked_spans(text: str, spans: Any) -> list[tuple[int, int]]:
    """Spans of characters of a text.

    Raises:
        InvalidParameter: One of them is no pair of numbers, lies outside the text, or holds nothing but white space;
            the message gives its index.
    """
    if isinstance(spans, str | bytes) or not isinstance(spans, Iterable):
        raise InvalidParameter(f"spans={spans!r:.60} must be a list of pairs (start, end) of characters")
    found = []
    for index, span in enumerate(spans):
        pair = tuple(span) if isinstance(span, Iterable) and not isinstance(span, str | bytes) else ()
        if len(pair) != 2 or any(isinstance(side, bool) or not isinstance(side, Integral) for side in pair):
            raise InvalidParameter(f"span {index} is {span!r:.60}; give a pair (start, end) of characters")
        start, end = int(pair[0]), int(pair[1])
        if not 0 <= start < end <= len(text):
            raise InvalidParameter(
                f"span {index} is ({start}, {end}) in a text of {len(text)} characters; it needs 0 <= start < end, and "
                "an end within the text"
            )
        if not text[start:end].strip():
            raise InvalidParameter(f"span {index}, ({start}, {end}), holds only white space; choose one with a word")
        found.append((start, end))
    return found


def chunks(texts: list[str], characters: int = CHUNK_CHARACTERS) -> Iterator[tuple[int, list[str]]]:
    """Runs of texts of so many characters together, at least one text, each with the index of its first."""
    first, size = 0, 0
    for at, text in enumerate(texts):
        if at > first and size + len(text) > characters:
            yield first, texts[first:at]
            first, size = at, 0
        size += len(text)
    if texts:
        yield first, texts[first:]
