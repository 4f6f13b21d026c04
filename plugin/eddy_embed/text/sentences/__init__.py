"""Sentences with exact character offsets, by spaCy's tokenizers and rules of our own; no torch, no trained model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from eddy_embed.errors import InvalidParameter
from eddy_embed.text.sentences.blocks import CONTINUED, blocks, headings
from eddy_embed.text.sentences.sentence_rules import VISIBLE, cut, get_pipeline, languages
from eddy_embed.utils.checks import check_count, raise_on_surrogates

__all__ = ["RULES", "Segmenter", "Sentence", "headings", "languages"]

RULES = "spacy-rules-4"
"""Name of the rules in force; the number rises whenever any text could be segmented otherwise than before."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a text: ``source[start:end] == text``, in characters, without surrounding whitespace.

    ``level`` is 0, or that of a heading: 1 to 6, or ``CONTINUED`` for what follows a heading on its own line.
    """

    start: int
    end: int
    text: str
    level: int = 0


class Segmenter:
    """Splits a text into sentences; equal texts give equal sentences, in any thread and any process.

    The sentences are in order and disjoint, with only whitespace between them. A blank line, a list item, a heading, a
    table row, a line of a fenced code block and the line of another speaker start a new sentence; a single line break
    does not, unless the lines are too long to be hard-wrapped. A sentence longer than ``max_chars`` is cut between
    clauses.

    Args:
        language: Code of one of spaCy's languages (see ``languages()``); ``"xx"`` is the generic one. It chooses the
            tokenizer and the abbreviations. Stops of all scripts are known in every language.
        max_chars: Most characters in a sentence, at least 1.

    Raises:
        InvalidParameter: The language is unknown, or ``max_chars`` below 1.
    """

    def __init__(self, language: str = "en", max_chars: int = 1000) -> None:
        if language not in languages():
            raise InvalidParameter(
                f"language={language!r} is none of spaCy's languages; eddy_embed.text.sentences.languages() lists "
                'them, and "xx" is the generic one'
            )
        check_count("max_chars", max_chars)
        self.language = language
        self.max_chars = max_chars

    def __repr__(self) -> str:
        """Return the call that makes an equal segmenter."""
        return f"Segmenter(language={self.language!r}, max_chars={self.max_chars})"

    @property
    def fingerprint(self) -> str:
        """Rules, language and limit in one line, such as ``spacy-rules-4:en:1000``; equal means equal sentences."""
        return f"{RULES}:{self.language}:{self.max_chars}"

    def sentences(self, text: str) -> list[Sentence]:
        """Split a text into sentences.

        Args:
            text: Any text. Blank text has no sentences.

        Returns:
            The sentences in order; every character that is not whitespace is in exactly one of them.

        Raises:
            InvalidText: It holds a lone surrogate, which is not valid Unicode.
        """
        raise_on_surrogates(text, "the text")
        return [Sentence(start, end, text[start:end], level) for start, end, level in self._visible(text)]

    def _visible(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Join spans that hold only invisible characters to a neighbour, as a tokenizer may give them no token."""
        held: tuple[int, int, int] | None = None
        for start, end, level in self._spans(text):
            if held is None:
                held = (start, end, level)
                continue
            joins = not VISIBLE.search(text, start, end) or not VISIBLE.search(text, *held[:2])
            if joins and end - held[0] <= self.max_chars:
                held = (held[0], end, max(held[2], level))
            else:
                yield held
                held = (start, end, level)
        if held is not None:
            yield held

    def _spans(self, text: str) -> Iterator[tuple[int, int, int]]:
        rules = get_pipeline(self.language).rules
        for start, end, prose, level in blocks(text):
            inside = rules.boundaries(text[start:end].rstrip()) if prose else []
            for left, right in pairwise([start, *(start + offset for offset in inside), end]):
                piece = text[left:right]
                left += len(piece) - len(piece.lstrip())
                right = left + len(piece.strip())
                if right - left > self.max_chars:
                    yield from ((*span, 0) for span in cut(text, left, right, self.max_chars))
                elif right > left:
                    yield left, right, level
                    level = level and CONTINUED
