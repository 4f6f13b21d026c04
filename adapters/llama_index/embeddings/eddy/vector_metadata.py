"""How a node says which embedder made its vector, and of which text; and how a query's vector says it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from llama_index.core.schema import BaseNode, MetadataMode

FINGERPRINT = "eddy_fingerprint"
TEXT_DIGEST = "eddy_text_digest"
N_TOKENS = "eddy_n_tokens"
N_WINDOWS = "eddy_n_windows"
N_TRUNCATED = "eddy_n_truncated"
KEYS = (FINGERPRINT, TEXT_DIGEST, N_TOKENS, N_WINDOWS, N_TRUNCATED)
HEADINGS = "heading_path"
"""The headings that a passage stands under, for people, language models and filters."""
PART = "eddy_part"
"""Whether a node is a whole document, a passage or a sentence: said of the node, whoever made its vector."""


class Vector(list[float]):
    """A vector that knows what made it; a list of numbers in every other way.

    Attributes:
        fingerprint: Of the embedder.
    """

    def __init__(self, values: Iterable[float], fingerprint: str) -> None:
        super().__init__(values)
        self.fingerprint = fingerprint

    def __reduce__(self) -> Any:
        return Vector, (list(self), self.fingerprint)


def text_digest(text: str) -> str:
    """Digest by which a vector's text is recognised: 16 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def carries_vector(node: BaseNode, fingerprint: str) -> bool:
    """Whether the node's embedding was made by this embedder and of the text that the node holds now.

    A splitter that comes later copies its parent's embedding and metadata to the pieces, so a fingerprint alone proves
    nothing: the text must be the one that was embedded.
    """
    return (
        node.embedding is not None
        and node.metadata.get(FINGERPRINT) == fingerprint
        and node.metadata.get(TEXT_DIGEST) == text_digest(node.get_content(metadata_mode=MetadataMode.NONE))
    )


def forget(node: BaseNode) -> None:
    """Remove what is said of a vector that the node no longer holds."""
    for key in KEYS:
        node.metadata.pop(key, None)
