"""Where the authors' released code differs from their papers: rewritten texts, other sources of HTP's blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from eddy_embed.utils.arrays import Ints

Revision = Literal["quoted", "sentences"]


@dataclass(frozen=True, eq=False)
class RewrittenText:
    """A rewritten text. A mark that was added stands for the character before it.

    Attributes:
        string: The rewritten text.
        starts: For each of its characters, the first one of the text that it stands for, shape (characters,).
        ends: The one after the last, shape (characters,).
        spans: Rows (start, end) of the sentences in `string`, None if not needed, shape (sentences, 2).
    """

    string: str
    starts: Ints
    ends: Ints
    spans: Ints | None = None

    def source(self, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
        """First character of the text, and the one after the last, that tokens of `string` stand for."""
        top = len(self.string) - 1
        first = self.starts[np.clip(starts, 0, top)]
        last = np.where(ends > starts, self.ends[np.clip(ends - 1, 0, top)], first)
        return first, last


def revise(revision: Revision, text: str, sentences: Ints | None) -> RewrittenText:
    """Rewrite a text that is not blank, with sentences of shape (sentences, 2), needed for "sentences".

    "quoted": a period after it unless it ends in one of . ? " ', single quotation marks for double ones, a period for a
    question mark at its end (Token Prepending). "sentences": each sentence with a period after it unless it ends in one
    of . ! ? ", one blank between two (HTP).
    """
    if revision == "sentences":
        return _by_sentence(text, sentences)
    added = "" if text[-1] in ".?\"'" else "."
    string = (text + added).replace('"', "'")
    if string[-1] == "?":
        string = string[:-1] + "."
    starts = np.minimum(np.arange(len(string)), len(text) - 1)
    # A period that is added to the last sentence belongs to it.
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
        ends += [index + 1 for index in origin]
    return RewrittenText(
        "".join(parts), np.array(starts, np.int64), np.array(ends, np.int64), np.array(spans, np.int64)
    )


def block_sources(before: Ints, own: Ints, length: int) -> Ints:
    """The tokens whose states the placeholders of HTP's blocks get, from the token that each block begins with.

    It is the one before the next block's placeholders; for the last block the first token after the text's `own`, or
    the last of the sequence of this length.
    """
    after = int(own[-1]) + 1 if len(own) else 0
    return np.append(before[1:] - 1, min(after, length - 1))
