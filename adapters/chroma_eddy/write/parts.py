"""A document embedded without the parts of it that are no passages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from chroma_eddy.types import Document
from eddy_embed.encoding.document import LongDocument, Passage, Span

SpanType = TypeVar("SpanType", bound=Span)


def kept_parts(document: Document) -> list[tuple[int, int]]:
    """First character, and the one after the last, of what is embedded; the whole text if all of it is left out."""
    borders = [0, *chain.from_iterable(document.left_out), len(document.text)]
    parts = zip(borders[::2], borders[1::2], strict=True)
    return [part for part in parts if document.text[slice(*part)].strip()] or [(0, len(document.text))]


def joined_parts(document: Document, parts: Sequence[tuple[int, int]], results: Sequence[LongDocument]) -> LongDocument:
    """One result out of those of a document's parts; its vector is that of the longest."""
    if len(results) == 1 and parts[0] == (0, len(document.text)):
        return results[0]
    passages, sentences, spans = list[Passage](), list[Span](), list[tuple[int, int]]()
    for (start, _), result in zip(parts, results, strict=True):
        first = len(spans)
        passages += [
            replace(
                _moved(passage, start),
                first_sentence=passage.first_sentence + first,
                last_sentence=passage.last_sentence + first,
            )
            for passage in result.passages
        ]
        sentences += [_moved(sentence, start) for sentence in result.sentences]
        spans += [(left + start, right + start) for left, right in result.sentence_spans]
    longest = max(results, key=lambda result: result.n_tokens)
    return LongDocument(
        document.text,
        longest.vector,
        passages,
        sentences,
        n_tokens=sum(result.n_tokens for result in results),
        n_windows=sum(result.n_windows for result in results),
        n_truncated=sum(result.n_truncated for result in results),
        sentence_spans=spans,
    )


def _moved(span: SpanType, by: int) -> SpanType:
    return replace(span, start=span.start + by, end=span.end + by)
