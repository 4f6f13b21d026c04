"""What the authors' released code does otherwise than their papers: texts rewritten, other sources of HTP's blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from eddy_embed.text.sequence import Ints

Revision = Literal["quoted", "sentences"]


@dataclass(frozen=True, eq=False)
class RewrittenText:
    """A text as it is written into the wording.

    A mark that was added stands for the character before it, so that it belongs to whatever that one belongs to.

    Attributes:
        string: What is written.
        starts: For each of its characters, the first one of the text that it stands for, shape (characters,).
        ends: The one after the last, shape (characters,).
        spans: Rows (start, end) of the sentences in `string`, None where they were not needed, shape (sentences, 2).
    """

    string: str
    starts: Ints
    ends: Ints
    spans: Ints | None = None

    def source(self, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
        """The characters of the text that tokens stand for.

        Args:
            starts: First character of each token in `string`, shape (tokens,).
            ends: Character after each token's last, shape (tokens,).
        """
        top = len(self.string) - 1
        first = self.starts[np.clip(starts, 0, top)]
        last = np.where(ends > starts, self.ends[np.clip(ends - 1, 0, top)], first)
        return first, last


def revise(revision: Revision, text: str, sentences: Ints | None) -> RewrittenText:
    """Rewrite a text.

    Args:
        revision: "quoted": a period behind it unless it ends in one of . ? " ', single quotation marks for double
            ones, a period for a question mark at its end (Token Prepending). "sentences": each sentence with a period
            behind it unless it ends in one of . ! ? ", one blank between two (HTP).
        text: Not blank.
        sentences: Rows (start, end) of its sentences, shape (sentences, 2); needed for "sentences".
    """
    return _quoted(text, sentences) if revision == "quoted" else _by_sentence(text, sentences)


def _quoted(text: str, sentences: Ints | None) -> RewrittenText:
    added = "" if text[-1] in ".?\"'" else "."
    string = (text + added).replace('"', "'")
    if string[-1] == "?":
        string = string[:-1] + "."
    starts = np.minimum(np.arange(len(string)), len(text) - 1)
    # A period that is added to the last sentence is that sentence's.
    spans = None if sentences is None else np.where(sentences == len(text), len(string), sentences)
    return RewrittenText(string, starts, starts + 1, spans)


def _by_sentence(text: str, sentences: Ints | None) -> RewrittenText:
    parts: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    spans: list[tuple[int, int]] = []
    for begin, stop in [(0, len(text))] if sentences is None or len(sentences) == 0 else sentences.tolist():
        sentence = text[begin:stop].strip()
        if not sentence:
            continue
        first = begin + text[begin:stop].index(sentence)
        if parts:
            parts.append(" ")
            starts.append(ends[-1])
            ends.append(first)
        last = first + len(sentence)
        added = [] if sentence[-1] in '.!?"' else [last - 1]
        origin = [*range(first, last), *added]
        spans.append((len(starts), len(starts) + len(origin)))
        parts.append(sentence + "." * len(added))
        starts += origin
        ends += [at + 1 for at in origin]
    return RewrittenText(
        "".join(parts), np.array(starts, np.int64), np.array(ends, np.int64), np.array(spans, np.int64)
    )


def block_sources(before: Ints, own: Ints, length: int) -> Ints:
    """The tokens whose states the placeholders of HTP's blocks get: the one before the next block's placeholders.

    Args:
        before: The token that each block begins with, shape (blocks,).
        own: Indices of the text's tokens.
        length: Tokens of the sequence; the last block gets the first token behind the text, or the sequence's last.
    """
    behind = int(own[-1]) + 1 if len(own) else 0
    return np.append(before[1:] - 1, min(behind, length - 1))
