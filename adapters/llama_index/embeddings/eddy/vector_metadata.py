"""Metadata that link a node's vector to its embedder and text, and query vectors that know their embedder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from llama_index.core.schema import BaseNode, MetadataMode

from eddy_embed.integrations import FINGERPRINT, N_TOKENS, N_TRUNCATED, N_WINDOWS

TEXT_DIGEST = "eddy_text_digest"
KEYS = (FINGERPRINT, TEXT_DIGEST, N_TOKENS, N_WINDOWS, N_TRUNCATED)
PART = "eddy_part"
"""Part of the document that a node is: document, passages or sentences; independent of the vector."""


class FingerprintedVector(list[float]):
    """A list of numbers that knows its embedder, by its fingerprint."""

    def __init__(self, values: Iterable[float], fingerprint: str) -> None:
        super().__init__(values)
        self.fingerprint = fingerprint

    def __reduce__(self) -> Any:
        return FingerprintedVector, (list(self), self.fingerprint)


def text_digest(text: str) -> str:
    """Hash of the text of a vector: 16 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def has_vector_of(node: BaseNode, fingerprint: str) -> bool:
    """Whether the embedder of this fingerprint made the node's embedding from the node's current text.

    The fingerprint alone proves nothing: a later splitter copies the embedding and metadata of a node to its pieces.
    """
    return (
        node.embedding is not None
        and node.metadata.get(FINGERPRINT) == fingerprint
        and node.metadata.get(TEXT_DIGEST) == text_digest(node.get_content(metadata_mode=MetadataMode.NONE))
    )
