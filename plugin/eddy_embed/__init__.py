"""Eddy turns a causal language model into an embedding model, without training it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from eddy_embed.utils.memory import collector_paused
from eddy_embed.utils.version import __version__

if TYPE_CHECKING:
    from eddy_embed.embedder import Embedder
    from eddy_embed.encoding.document import LongDocument, Passage, Span
    from eddy_embed.encoding.explain import Explanation
    from eddy_embed.methods.method import Method
    from eddy_embed.reranker import Reranker
    from eddy_embed.text.sentences import Segmenter, Sentence

_HOMES = {
    "Embedder": "embedder",
    "Explanation": "encoding.explain",
    "LongDocument": "encoding.document",
    "Method": "methods.method",
    "Passage": "encoding.document",
    "Reranker": "reranker",
    "Segmenter": "text.sentences",
    "Sentence": "text.sentences",
    "Span": "encoding.document",
}

__all__ = [
    "Embedder",
    "Explanation",
    "LongDocument",
    "Method",
    "Passage",
    "Reranker",
    "Segmenter",
    "Sentence",
    "Span",
    "__version__",
]


def __getattr__(name: str) -> Any:
    # Importing the package must not import torch: a command line that prints its help should not wait for it.
    if name not in _HOMES:
        raise AttributeError(f"module 'eddy_embed' has no attribute {name!r}")
    with collector_paused():
        value = globals()[name] = getattr(import_module(f"eddy_embed.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
