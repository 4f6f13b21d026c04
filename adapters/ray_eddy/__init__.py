"""Eddy on Ray: embed datasets in a pool of actors, and ingest documents by many embedders and one writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eddy_embed.utils.extras import import_lazily

if TYPE_CHECKING:
    from ray_eddy.embedding import EddyEmbed
    from ray_eddy.ingestion import IngestReport, ingest

__all__ = ["EddyEmbed", "IngestReport", "ingest"]
_MODULES = {"EddyEmbed": "embedding", "IngestReport": "ingestion", "ingest": "ingestion"}


def __getattr__(name: str) -> Any:
    return import_lazily(__name__, _MODULES, name, "chroma,ray" if _MODULES.get(name) == "ingestion" else "ray")
