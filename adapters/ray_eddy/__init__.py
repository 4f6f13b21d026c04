"""Eddy on Ray: embed documents in a pool of actors, and ingest them into an index by many embedders and one writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eddy_embed.integrations import import_lazily

if TYPE_CHECKING:
    from ray_eddy.embedding import EddyEmbed
    from ray_eddy.ingestion import IngestReport, ingest
    from ray_eddy.reading import in_order, read_documents

__all__ = ["EddyEmbed", "IngestReport", "in_order", "ingest", "read_documents"]
_MODULES = {
    "EddyEmbed": "embedding",
    "IngestReport": "ingestion",
    "in_order": "reading",
    "ingest": "ingestion",
    "read_documents": "reading",
}


def __getattr__(name: str) -> Any:
    return import_lazily(__name__, _MODULES, name, "chroma,ray" if _MODULES.get(name) == "ingestion" else "ray")
