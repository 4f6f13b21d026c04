"""Texts as the released code of Token Prepending and of HTP rewrites them."""

from __future__ import annotations

from collections.abc import Sequence

Span = tuple[int, int]


def quoted(text: str) -> str:
    """What Token Prepending's code puts into its prompts."""
    if not text.endswith((".", "?", '"', "'")):
        text += "."
    text = "".join("'" if character == '"' else character for character in text)
    return text.removesuffix("?") + "." if text.endswith("?") else text


def by_sentence(text: str, sentences: Sequence[Span]) -> tuple[str, list[Span]]:
    """What HTP's code makes of a text, and where its sentences then are."""
    written, spans = "", []
    for start, end in sentences:
        sentence = text[start:end].strip()
        if not sentence.endswith((".", "!", "?", '"')):
            sentence += "."
        if written:
            written += " "
        spans.append((len(written), len(written) + len(sentence)))
        written += sentence
    return written, spans
