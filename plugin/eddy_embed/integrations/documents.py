"""What frameworks' documents need: ids, metadata names, page numbers, blank ones, failing ones."""

from __future__ import annotations

import hashlib
import json
import uuid
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar

from eddy_embed.errors import InvalidParameter
from eddy_embed.parts.layout import TextRole
from eddy_embed.utils.checks import raise_on_surrogates

if TYPE_CHECKING:
    from eddy_embed.embedder import Embedder


# Fixed for good: a change would give every passage in every existing collection a new identifier.
_NAMESPACE = uuid.UUID("6fc9a4d2-7d5f-5a3e-9a0b-3f4f0c1d8e27")
_SOURCE_KEYS = ("file_path", "source", "url")


def document_identity(document_id: str | None, metadata: Mapping[str, Any]) -> str:
    """Return what a document is called between runs: its id, else the place that its metadata say it was read from.

    Where that is unknown too, nothing: then its text alone tells it from others.
    """
    return document_id or _first_of(metadata, _SOURCE_KEYS)


def _first_of(metadata: Mapping[str, Any], keys: Iterable[str]) -> str:
    return next((str(metadata[key]) for key in keys if metadata.get(key)), "")


def is_random(document_id: str) -> bool:
    """Return whether an id was drawn at random, as a framework does for a document that was given none."""
    try:
        return uuid.UUID(document_id).version == 4
    except ValueError:
        return False


def passage_id(
    identity: str, text: str, copy: int, start: int, end: int, fingerprint: str, late: bool, part: str = "passages"
) -> str:
    """Return identifier of one passage, in UUID form, which every vector store takes.

    All that decides the vector is in it, the whole document included, since a passage's vector depends on what stands
    around it: a store that keeps the old row of a known id keeps a right one.

    `text` is the whole document, `copy` the number of equal documents of the same `document_identity` before it in the
    same call; `late`: the vector was read out of a pass over the document, not over the passage alone. `part` is what
    it is, if it is no passage: a sentence may be a passage's only one, and is another row.
    """
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    named = [] if part == "passages" else [part]
    return str(uuid.uuid5(_NAMESPACE, json.dumps([identity, digest, copy, start, end, fingerprint, late, *named])))


FINGERPRINT = "eddy_fingerprint"
"""Fingerprint of the embedder that made the vector."""
DOCUMENT = "eddy_document"
"""Id of the document."""
N_TOKENS, N_WINDOWS, N_TRUNCATED = "eddy_n_tokens", "eddy_n_windows", "eddy_n_truncated"
"""Tokens of the passage; passes over its document; tokens at the end of the document that were not read."""
START, END = "start_index", "end_index"
"""Character offsets of the passage in its document."""
HEADINGS = "heading_path"
"""Headings above the passage, the highest first."""


PAGES = "eddy_pages"
"""In the metadata of a joined document: its pages, each as its first character and its label, in JSON."""
LEFT_OUT, NOTES = "eddy_left_out", "eddy_notes"
"""In the metadata of a document that Eddy's readers read: parts that are no passages, and what was left out; JSON."""
LABEL, LAST_LABEL = "page_label", "last_page_label"
"""In the metadata of a page, what is printed on it or stands for that; of a passage, where it begins and ends."""


def passage_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a document's passages share of its metadata: all but what holds for the document alone."""
    return {key: value for key, value in metadata.items() if key not in (PAGES, LEFT_OUT, NOTES)}


_FILES = (*_SOURCE_KEYS, "file_name")
_OF_A_PAGE = (LABEL, "page", PAGES)
_BETWEEN = "\n"
"""A line end and no more, and none at the end of a page, so that a sentence that goes on over its border is one."""


def page_name(metadata: Mapping[str, Any]) -> str:
    """Return the file and the page that metadata name, for messages; "" if they name no file."""
    file = _first_of(metadata, _FILES)
    page = f", page {metadata[LABEL]}" if file and LABEL in metadata else ""
    return file + page


def pages_by_file(metadatas: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[int]]]:
    """Return the file of each group of pages, and their numbers; a document that is no page has a group and no file."""
    groups: dict[str | int, list[int]] = {}
    for number, metadata in enumerate(metadatas):
        file = _first_of(metadata, _FILES)
        if LABEL not in metadata:
            groups[number] = [number]
        elif file:
            groups.setdefault(file, []).append(number)
        else:
            raise InvalidParameter(
                f"documents[{number}] is page {metadata[LABEL]!r} of no file; its metadata need one of "
                f"{', '.join(_FILES)}, by which pages are told to belong together"
            )
    return [(file if isinstance(file, str) else "", numbers) for file, numbers in groups.items()]


def joined_pages(texts: Sequence[str], metadatas: Sequence[Mapping[str, Any]]) -> tuple[str, dict[str, Any]]:
    """Return the text of a file, and the metadata that all its pages share, with where each of them begins."""
    texts = [text.lstrip("\r\n\f").rstrip() for text in texts]
    starts = accumulate((len(text) + len(_BETWEEN) for text in texts[:-1]), initial=0)
    first, *others = metadatas
    alike = {
        key: value
        for key, value in first.items()
        if key not in _OF_A_PAGE and all(key in page and page[key] == value for page in others)
    }
    labels = [str(metadata[LABEL]) for metadata in metadatas]
    return _BETWEEN.join(texts), {**alike, PAGES: json.dumps(list(zip(starts, labels, strict=True)))}


@dataclass(frozen=True)
class Pages:
    """First character and label of each page of a document; none of a document without pages."""

    starts: tuple[int, ...]
    page_labels: tuple[str, ...]

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Pages:
        """Return page numbers in a document's metadata."""
        pages = json.loads(metadata.get(PAGES, "[]"))
        return cls(tuple(start for start, _ in pages), tuple(label for _, label in pages))

    def numbers(self, start: int, end: int) -> dict[str, int]:
        """Return a span's metadata: the pages on which it begins and ends, from 1; empty without pages."""
        if not self.starts:
            return {}
        return {"page": bisect_right(self.starts, start), "last_page": bisect_right(self.starts, max(start, end - 1))}

    def labels(self, start: int, end: int) -> dict[str, str]:
        """Return a span's metadata: the labels of the pages on which it begins and ends; empty without labels."""
        if not self.page_labels:
            return {}
        first, last = self.numbers(start, end).values()
        return {LABEL: self.page_labels[first - 1], LAST_LABEL: self.page_labels[last - 1]}


T = TypeVar("T")

# Size of a call of the engine: enough to fill batches with short documents, with sentence vectors of some tens of
# megabytes at most.
BATCH_DOCUMENTS, BATCH_CHARACTERS = 64, 400_000


def with_text(
    documents: Iterable[T], text_of: Callable[[T], str], name_of: Callable[[T, int], str], made: str
) -> Iterator[T]:
    """Yield the documents that hold text, then name the others in one warning: they give no `made`.

    Raises:
        InvalidText: A document's text is not valid Unicode.
    """
    blank: list[str] = []
    index = -1
    for index, document in enumerate(documents):
        text = text_of(document)
        raise_on_surrogates(text, f"Document {name_of(document, index)}")
        if text.strip():
            yield document
        else:
            blank.append(name_of(document, index))
    warn_of_blank(blank, index + 1, made)


def warn_of_blank(names: Sequence[str], total: int, made: str, what: str = "documents") -> None:
    """Name the blank ones among `total` documents in one warning, if there are any: they give no `made`."""
    if names:
        shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        warnings.warn(f"{len(names)} of {total} {what} hold no text and give no {made}: {shown}", stacklevel=4)


def filled(texts: Iterable[str]) -> list[str]:
    """Return texts for a framework that asks for a vector of each: a full stop in place of each that is blank.

    A blank text has no token that could be read, in a layout without a prompt not even one.
    """
    return [text if text.strip() else "." for text in texts]


def grouped_by_size(
    items: Iterable[T],
    size_of: Callable[[T], int],
    most_items: float = BATCH_DOCUMENTS,
    most_size: int = BATCH_CHARACTERS,
) -> Iterator[list[T]]:
    """Group items in order, by number and by size together; a larger item is a group by itself."""
    group: list[T] = []
    total = 0
    for item in items:
        size = size_of(item)
        if group and (len(group) == most_items or total + size > most_size):
            yield group
            group, total = [], 0
        group.append(item)
        total += size
    if group:
        yield group


Item = TypeVar("Item")
Result = TypeVar("Result")


def isolate_failures(
    run: Callable[[list[Item]], Sequence[Result]],
    items: list[Item],
    kinds: type[Exception] | tuple[type[Exception], ...] = Exception,
) -> list[Result | Exception]:
    """Run items together; after a failure of such a kind run halves, until only items that fail alone have an error."""
    if not items:
        return []
    try:
        return [*run(items)]
    except kinds as error:
        if len(items) == 1:
            return [error]
    # Outside the handler: the exception keeps the failed pass's tensors alive.
    middle = len(items) // 2
    return [*isolate_failures(run, items[:middle], kinds), *isolate_failures(run, items[middle:], kinds)]


def first_tokens(embedder: Embedder, texts: Sequence[str], most: int | None, *, role: TextRole) -> list[str]:
    """Cut each text after so many of its tokens; None: after as many as one pass takes beside what is around them."""
    tokenizer, planner = embedder._pipeline.planner.tokenizer, embedder._pipeline.planner
    if most is not None:
        return [tokenizer.first(text, most) for text in texts]

    def length(text: str) -> int:
        return planner.lengths([text], role)[0]

    def fitting(text: str) -> str:
        start = tokenizer.first(text, embedder.max_length)
        if length(start) <= embedder.max_length:
            return start
        sizes = range(1, embedder.count_tokens(start))
        size = bisect_right(sizes, embedder.max_length, key=lambda size: length(tokenizer.first(start, size)))
        return tokenizer.first(start, max(1, size))

    return [fitting(text) for text in texts]
