"""Identifiers of documents and passages: the same in every process, and the same in every framework."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from typing import Any

# Fixed for good: a change would give every passage in every existing collection a new identifier.
_NAMESPACE = uuid.UUID("6fc9a4d2-7d5f-5a3e-9a0b-3f4f0c1d8e27")
_SOURCE_KEYS = ("file_path", "source", "url")


def document_identity(document_id: str | None, metadata: Mapping[str, Any]) -> str:
    """What a document is called between runs: its id, else the place that its metadata say it was read from.

    Where that is unknown too, nothing: then its text alone tells it from others.
    """
    return document_id or next((str(metadata[key]) for key in _SOURCE_KEYS if metadata.get(key)), "")


def is_random(document_id: str) -> bool:
    """Whether an id was drawn at random, as a framework does for a document that was given none."""
    try:
        return uuid.UUID(document_id).version == 4
    except ValueError:
        return False


def passage_id(
    identity: str, text: str, copy: int, start: int, end: int, fingerprint: str, late: bool, part: str = "passages"
) -> str:
    """Identifier of one passage, in UUID form, which every vector store takes.

    All that decides the vector is in it, the whole document included, since a passage's vector depends on what stands
    around it: a store that keeps the old row of a known id keeps a right one.

    `text` is the whole document, `copy` the number of equal documents of the same `document_identity` before it in the
    same call; `late`: the vector was read out of a pass over the document, not over the passage alone. `part` is what
    it is, if it is no passage: a sentence may be a passage's only one, and is another row.
    """
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    named = [] if part == "passages" else [part]
    return str(uuid.uuid5(_NAMESPACE, json.dumps([identity, digest, copy, start, end, fingerprint, late, *named])))
