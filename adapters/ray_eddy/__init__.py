"""Eddy on Ray: embed documents in a pool of actors, and ingest them into an index by many embedders and one writer."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from eddy_embed.utils.extras import importing

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
    """Import on first use: the command line imports this package at every start, and Ray takes seconds."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES[name]
    with importing("chroma,ray" if module == "ingestion" else "ray"):
        return getattr(import_module(f"ray_eddy.{module}"), name)
