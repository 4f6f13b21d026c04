"""Eddy on Ray: embed documents in a pool of actors, and ingest them into an index by many embedders and one writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
_EXTRAS = {"pyarrow": "ray", "ray": "ray", "chromadb": "chroma,ray", "filelock": "chroma,ray"}


def __getattr__(name: str) -> Any:
    """Import on first use: the command line imports this package at every start, and Ray takes seconds."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        module = import_module(f"ray_eddy.{_MODULES[name]}")
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        from eddy_embed.errors import MissingExtra

        raise MissingExtra(f"{error.name} not installed; pip install 'eddy-embed[{_EXTRAS[error.name]}]'") from None
    return getattr(module, name)
