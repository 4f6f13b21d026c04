"""Warn if nodes that a retriever found were embedded by another embedder than the question.

LlamaIndex hands an embedding model texts, never the index, so nothing but the events of retrieval brings the two
together. Event handlers cannot raise.
"""

from __future__ import annotations

import warnings
from contextvars import ContextVar
from typing import Any

from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers.base import BaseEventHandler
from llama_index.core.instrumentation.events.base import BaseEvent
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent, RetrievalStartEvent

from llama_index.embeddings.eddy.vector_metadata import FINGERPRINT

asked_by: ContextVar[tuple[str, str] | None] = ContextVar("eddy_asked_by", default=None)
"""Fingerprint and name of the embedder of the present retrieval's question."""
_warned: set[tuple[str, str]] = set()


class RetrievalCheck(BaseEventHandler):
    """Compares the fingerprint in the metadata of found nodes with that of the question's embedder."""

    @classmethod
    def class_name(cls) -> str:
        """Name under which LlamaIndex knows the class."""
        return "EddyRetrievalCheck"

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        """Begin a retrieval without a question, or check what it found."""
        if isinstance(event, RetrievalStartEvent):
            asked_by.set(None)
        elif isinstance(event, RetrievalEndEvent) and (asked := asked_by.get()) is not None:
            for found in event.nodes:
                made = found.node.metadata.get(FINGERPRINT, asked[0])
                if made != asked[0] and (made, asked[0]) not in _warned:
                    _warned.add((made, asked[0]))
                    warnings.warn(
                        f"Node {found.node.node_id!r} was embedded by another maker than the question, {asked[1]}.\n"
                        f"Its fingerprint: {made}, the question's: {asked[0]}. The scores mean nothing: open the index "
                        "with the embedding model that made it, or embed its documents again.",
                        stacklevel=2,
                    )


get_dispatcher().add_event_handler(RetrievalCheck())
