"""Eddy's own handbook, the documents of the demo, and three questions about it."""

from __future__ import annotations

from pathlib import Path

QUESTIONS = (
    "What happens to a document that is longer than the model's window?",
    "How much more does hierarchical token prepending cost than plain mean pooling?",
    "Why does a library refuse a question asked with another model?",
)


def folder() -> Path:
    """Return the folder of the handbook: inside the installed package, or `docs/` of a checkout."""
    packaged = Path(__file__).parent / "handbook"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "docs"
