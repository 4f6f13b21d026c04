"""What an index stores in Chroma: names of collections, settings, and the rows of documents and passages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from chromadb.api.types import validate_where, validate_where_document

from chroma_eddy.types import DIGEST, FIELDS, PREFIX, RESERVED, VECTOR, WRITTEN, Document, ForeignCollection
from eddy_embed.encoding.document import LongDocument, heading_path
from eddy_embed.encoding.validation import PASSAGE_SIZE
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations.documents import DOCUMENT, END, FINGERPRINT, HEADINGS, START, Pages, passage_id
from eddy_embed.text.sentences import Segmenter
from eddy_embed.utils.arrays import Floats
from eddy_embed.utils.settings import differences, digest

if TYPE_CHECKING:
    from eddy_embed import Embedder  # imports torch

FORMAT = 4  # version of what is written; an index of another one is refused
_FRAMEWORKS = ("_node_content", "_node_type")  # metadata of rows from which LlamaIndex makes its nodes again
_SIZES = ("passage_size", "late", "sentence_vectors")
_COUNTS = ("passages", "sentences", "tokens", "windows", "truncated", "characters")
_ROUNDING = 1e-6  # largest difference of entries of two vectors by rounding, relative to entries above 1
_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
Filter = dict[str, Any]  # a condition of Chroma's on metadata or on texts


# --- Names and settings -----------------------------------------------------------------------------------------------


def check_collection_name(name: Any) -> None:
    """Refuse a name that Chroma takes for no collection, as "p2", which is too short."""
    if not isinstance(name, str) or not re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9._-]{1,510}[a-zA-Z0-9]", name):
        raise InvalidParameter(
            f"name={name!r:.80} is no collection's name: it must have 3 to 512 characters, of a-z, A-Z, 0-9 and . _ -, "
            "and begin and end with a letter or digit"
        )


@dataclass(frozen=True)
class IndexSettings:
    """What makes an index's vectors; opening the index with others is refused.

    `embedder` is `Embedder.settings`, with a digest of its fitted post-processing, and the rest as in `open_index`.
    """

    embedder: Mapping[str, Any]
    passage_size: int = PASSAGE_SIZE
    late: bool = True
    sentence_vectors: bool = True

    @cached_property
    def fingerprint(self) -> str:
        """The embedder's fingerprint."""
        return digest(dict(self.embedder))

    @property
    def sizes(self) -> dict[str, Any]:
        """The options of `open_index` beside the embedder."""
        return {name: getattr(self, name) for name in _SIZES}

    @property
    def metadata(self) -> dict[str, Any]:
        """The settings as the main collection stores them."""
        settings = json.dumps(self.embedder, sort_keys=True)
        sizes = {f"eddy_{name}": value for name, value in self.sizes.items()}
        return {"eddy_format": FORMAT, FINGERPRINT: self.fingerprint, "eddy_settings": settings, **sizes}

    @classmethod
    def of(cls, embedder: Embedder) -> IndexSettings:
        """Return the settings of a new index, as JSON gives them back: with lists in place of tuples."""
        return cls(json.loads(json.dumps(embedder.settings)), late=embedder.reads_late)

    @classmethod
    def parse(cls, name: str, metadata: Mapping[str, Any]) -> IndexSettings:
        """Parse the settings in the metadata of an index's main collection.

        Raises:
            ForeignCollection: The collection is no index's, or another version of this library wrote it.
        """
        if metadata.get("eddy_format", FORMAT) != FORMAT:
            raise ForeignCollection(
                f"index {name!r} was made by another version of Eddy: ingest its files again into a new folder"
            )
        try:
            sizes = {size: metadata[f"eddy_{size}"] for size in _SIZES}
            settings = cls(json.loads(metadata["eddy_settings"]), **sizes)
        except (KeyError, ValueError, TypeError):
            settings = None
        if settings is None or "eddy_format" not in metadata or settings.fingerprint != metadata.get(FINGERPRINT):
            by = "open_collection" if FINGERPRINT in metadata else "something else"
            raise ForeignCollection(
                f"collection {name!r} was made by {by}, not as an index: choose another name; it is left as it is"
            )
        return settings

    def differences(self, other: IndexSettings) -> str:
        """Return a line for each field in which the settings of a caller differ, with both values; "" if none does."""
        both = ({"fingerprint": of.fingerprint, **of.sizes, **of.embedder} for of in (self, other))
        differing = [(name, *map(_as_json, values)) for name, *values in differences(*both)]
        width = max((len(name) for name, _, _ in differing), default=0)
        return "\n".join(f"  {name:{width}}  {stored:.80}, here {here:.80}" for name, stored, here in differing)


_COLUMNS = ("ids", "metadatas", "texts")
_NO_VECTORS = np.zeros((0, 0), np.float32)


@dataclass(frozen=True)
class RowBatch:
    """Rows of a collection; fields that were not requested are empty."""

    ids: list[str]
    metadatas: list[dict[str, Any]]
    texts: list[str] = field(default_factory=list)
    vectors: Floats = field(default_factory=lambda: _NO_VECTORS)

    @classmethod
    def parse(cls, got: Any) -> RowBatch:
        """Parse what Chroma's `get` returned."""
        vectors = _NO_VECTORS if got["embeddings"] is None else got["embeddings"]
        metadatas = [dict(row or {}) for row in got["metadatas"] or []]
        return cls(got["ids"], metadatas, list(got["documents"] or []), np.asarray(vectors, np.float32))

    def take(self, numbers: Sequence[int]) -> RowBatch:
        """Return some of the rows, by their numbers."""
        ids, metadatas = [self.ids[at] for at in numbers], [self.metadatas[at] for at in numbers]
        texts = [self.texts[at] for at in numbers] if self.texts else []
        return RowBatch(ids, metadatas, texts, self.vectors[list(numbers)] if len(self.vectors) else self.vectors)

    def in_order(self) -> RowBatch:
        """Return the passages of one version as they follow each other in the document."""
        places = [fields(metadata)["index"] for metadata in self.metadatas]
        return self.take(sorted(range(len(places)), key=places.__getitem__))

    @classmethod
    def concatenate(cls, pages: Iterable[RowBatch]) -> RowBatch:
        """Join the rows of all pages."""
        pages = list(pages)
        ids, metadatas, texts = ([*chain(*(getattr(page, name) for page in pages))] for name in _COLUMNS)
        vectors = [page.vectors for page in pages if len(page.vectors)] or [_NO_VECTORS]
        return cls(ids, metadatas, texts, np.concatenate(vectors))


def are_alike(one: Floats, other: Floats) -> bool:
    """Return whether two vectors, shape (width,), differ by rounding alone."""
    return bool(np.allclose(one, other, rtol=_ROUNDING, atol=_ROUNDING))


def conjunction(filters: Iterable[Filter | None]) -> Filter | None:
    """Return the condition that all of some conditions are met, of which None and {} are none; None without any."""
    conditions = [condition for condition in filters if condition]
    return {"$and": conditions} if len(conditions) > 1 else next(iter(conditions), None)


def check_conditions(where: Any, where_document: Any = None) -> None:
    """Refuse conditions that Chroma's own check does not take, quoted; None and {} are none.

    What only its database refuses, such as a wrong regular expression, is an InvalidParameter by `translated_errors`.
    """
    for name, condition, validate, example in (
        ("where", where, validate_where, '{"year": {"$gte": 1921}}'),
        ("where_document", where_document, validate_where_document, '{"$contains": "ferry"}'),
    ):
        try:
            if condition not in (None, {}):
                validate(condition)
        except (ValueError, TypeError) as error:
            raise InvalidParameter(
                f"{name}={condition!r:.200} is no condition of Chroma's: {error}; write one such as {example}"
            ) from None


@dataclass(frozen=True)
class StoredDocument:
    """The index's row of a document: what the document has beside its text, and numbers as a `LongDocument` has them.

    `digest` is that of the version that queries find; "" for a damaged document, which they do not find.
    """

    id: str
    digest: str
    text_digest: str
    passages: int
    sentences: int
    tokens: int
    windows: int
    truncated: int
    characters: int
    page_starts: tuple[int, ...]
    page_labels: tuple[str, ...]
    left_out: tuple[tuple[int, int], ...]
    metadata: dict[str, Any]

    @classmethod
    def parse(cls, id_: str, row: Mapping[str, Any]) -> StoredDocument:
        """Parse a row of the documents' collection."""
        stored = fields(row)
        counts: dict[str, Any] = {name: int(stored[name]) for name in _COUNTS}
        return cls(
            *(id_, row[DIGEST], stored["text"]),
            **counts,
            page_starts=tuple(map(int, str(stored.get("page_starts", "")).split())),
            page_labels=tuple(stored.get("page_labels", ())),
            left_out=tuple((start, end) for start, end in stored.get("left_out", ())),
            metadata=user_metadata(row),
        )

    @classmethod
    def by_id(cls, rows: RowBatch) -> dict[str, StoredDocument]:
        """Parse rows, by their ids."""
        return {id_: cls.parse(id_, row) for id_, row in zip(rows.ids, rows.metadatas, strict=True)}

    def document(self, text: str) -> Document:
        """Return the document as it was given."""
        return Document(self.id, text, self.metadata, self.page_starts, self.page_labels, self.left_out)

    @property
    def pages(self) -> Pages:
        """Where its pages begin, and what they are called."""
        return Pages(self.page_starts, self.page_labels)

    @property
    def complete(self) -> bool:
        """Whether queries find the document."""
        return bool(self.digest)


def user_metadata(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a row's metadata that the user gave, or a framework."""
    if not row.get(DIGEST):
        return {key: value for key, value in row.items() if key not in (*_FRAMEWORKS, *WRITTEN, DOCUMENT)}
    return {key: value for key, value in row.items() if not key.startswith(PREFIX) and key not in RESERVED}


def fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `FIELDS` of a row says; a framework's row says nothing there."""
    stored: dict[str, Any] = json.loads(row.get(FIELDS, "{}"))
    return stored


def new_rows(
    document: Document, embedded: LongDocument, settings: IndexSettings, sentence_vectors: Sequence[int] = ()
) -> tuple[RowBatch, RowBatch]:
    """Return a document's passages and its own row; `sentence_vectors`: numbers of sentences' vectors, if stored."""
    text, passages = document.text, embedded.passages
    spans = embedded.sentence_spans or split_sentences(text, settings)
    places, before = [], 0
    for index, passage in enumerate(passages):
        inside = spans[passage.first_sentence : passage.last_sentence + 1]
        stored = {
            "index": index,
            "rows": len(passages),
            "n_tokens": passage.n_tokens,
            "sentences": " ".join(f"{start - passage.start}-{end - passage.start}" for start, end in inside),
            **({"before": text[before : passage.start]} if before < passage.start else {}),
            **({"vectors": sentence_vectors[passage.first_sentence]} if sentence_vectors else {}),
            **({"sections": [[at, heading_path(of)] for at, of in passage.sections]} if passage.sections else {}),
        }
        headings = {HEADINGS: heading_path(passage.headings)} if passage.headings else {}
        places.append({START: passage.start, END: passage.end, FIELDS: _as_json(stored), **headings})
        before = passage.end
    sizes = (embedded.n_tokens, embedded.n_windows, embedded.n_truncated, len(text))
    counts = zip(_COUNTS, (len(passages), passages[-1].last_sentence + 1, *sizes), strict=True)
    whole = {"text": document.text_digest, **dict(counts), "after": text[before:]}
    whole |= {"left_out": document.left_out} if document.left_out else {}
    texts = [text[passage.start : passage.end] for passage in passages]
    vectors = np.stack([np.asarray(passage.vector, np.float32) for passage in passages])
    own = np.asarray(embedded.vector, np.float32)[None]
    return _labelled(document, settings, RowBatch([], places, texts, vectors), whole, own)


def relabelled(
    row: RowBatch, passages: RowBatch, document: Document, settings: IndexSettings
) -> tuple[RowBatch, RowBatch]:
    """Return the rows of a version for another one, of the same text with other metadata or pages."""
    stays = (START, END, HEADINGS, FIELDS, VECTOR)
    places = [{key: old[key] for key in stays if key in old} for old in passages.metadatas]
    whole = {key: value for key, value in fields(row.metadatas[0]).items() if key != "page_labels"}
    return _labelled(document, settings, replace(passages, metadatas=places), whole, row.vectors)


def _labelled(
    document: Document, settings: IndexSettings, passages: RowBatch, whole: dict[str, Any], vector: Floats
) -> tuple[RowBatch, RowBatch]:
    """Return passages and their document's row with ids and the document's metadata; `whole`: what its row stores."""
    mark = {DOCUMENT: document.id, DIGEST: document.digest}
    ids, metadatas = [], []
    for place in passages.metadatas:
        span = (place[START], place[END])
        ids.append(passage_id(document.id, mark[DIGEST], 0, *span, settings.fingerprint, settings.late))
        metadatas.append({**place, **document.metadata, **document.pages.numbers(*span), **mark})
    whole["page_starts"] = " ".join(map(str, document.page_starts))
    whole |= {"page_labels": document.page_labels} if document.page_labels else {}
    row = {**document.metadata, **mark, FIELDS: _as_json(whole)}
    return replace(passages, ids=ids, metadatas=metadatas), RowBatch([document.id], [row], [], vector)


def share_vectors(documents: RowBatch, passages: RowBatch) -> None:
    """Let a document of one passage have the passage's stored vector, from which its own differs by rounding."""
    numbers: dict[str, list[int]] = {}
    for at, row in enumerate(passages.metadatas):
        numbers.setdefault(row[DOCUMENT], []).append(at)
    for at, id_ in enumerate(documents.ids):
        first, *others = numbers[id_]
        stored = passages.metadatas[first].get(VECTOR)
        if stored is not None and not others and are_alike(documents.vectors[at], passages.vectors[first]):
            documents.metadatas[at][VECTOR] = stored
            documents.vectors[at] = passages.vectors[first]


def sentence_spans(row: Mapping[str, Any], text: str, settings: IndexSettings) -> list[tuple[int, int]]:
    """Return the offsets of the sentences of a row's text: as stored, or, of a framework's row, by the segmenter."""
    if not row[DIGEST]:
        return split_sentences(text, settings)
    pairs = (span.split("-") for span in str(fields(row)["sentences"]).split())
    return [(int(start), int(end)) for start, end in pairs]


def split_sentences(text: str, settings: IndexSettings) -> list[tuple[int, int]]:
    """Return the offsets of a text's sentences, by the index's segmenter."""
    _, language, most = str(settings.embedder["segmenter"]).rsplit(":", 2)
    return [(sentence.start, sentence.end) for sentence in Segmenter(language, int(most)).sentences(text)]


def join_text(passages: RowBatch, document: Mapping[str, Any]) -> str:
    """Join a document's text from its passages, in order, and metadata of its own row."""
    before = (str(fields(row).get("before", "")) for row in passages.metadatas)
    parts = (gap + text for gap, text in zip(before, passages.texts, strict=True))
    return "".join(parts) + str(fields(document)["after"])
