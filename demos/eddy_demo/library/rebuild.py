"""A library made anew out of its own stored texts, with another model, method or passage size."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from chroma_eddy import NoIndex, open_index
from eddy_demo.library.index import NAME
from eddy_demo.library.recipe import CHROMA, NEXT, Recipe, write_recipe
from eddy_embed.errors import FingerprintMismatch, IncompatibleMethods, InvalidParameter
from eddy_embed.files import whole

if TYPE_CHECKING:
    from chroma_eddy import WriteReport
    from eddy_embed import Embedder


def unfinished(folder: Path) -> Recipe | None:
    """The recipe of a rebuilding that was interrupted; None for none."""
    try:
        return Recipe(**json.loads((folder / NEXT).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def rebuild(
    folder: Path, recipe: Recipe, embedder: Embedder, progress: Callable[[float, int], None] | None = None
) -> WriteReport | None:
    """Embed the stored texts again; the library goes on to answer as it was until the new one is whole.

    Stopped at any moment, the same call goes on where it was. The library's folder is to be held by the caller.

    Args:
        folder: Of the library.
        recipe: Of the new one.
        embedder: As the recipe names it, nothing fitted.
        progress: Called with the characters embedded so far, and the documents written.

    Returns:
        What was written, None if an earlier call had finished it but for the recipe's file.

    Raises:
        InvalidParameter: Post-processing has too few passages to be fitted on; nothing is left to go on with.
        IncompatibleMethods: The method gives no vectors for parts of a text; nothing is left to go on with.
        NoIndex: Nothing was written yet; nothing is left to go on with.
        IndexInUse: Another process is writing.
    """
    before = unfinished(folder)
    if before == recipe and _taken(folder, embedder, recipe):
        _settle(folder, recipe)
        return None
    with whole(folder / NEXT) as file:
        file.write(json.dumps(asdict(recipe)).encode())
    try:
        with open_index(folder / CHROMA, NAME) as index:
            report = index.reindex(
                embedder,
                passage_size=recipe.passage_size,
                late=recipe.late,
                restart=before not in (None, recipe),
                progress=progress,
            )
    except (InvalidParameter, IncompatibleMethods, NoIndex):  # tried again, it would fail again
        (folder / NEXT).unlink(missing_ok=True)
        raise
    _settle(folder, recipe)
    return report


def _taken(folder: Path, embedder: Embedder, recipe: Recipe) -> bool:
    """Whether the new index has taken the old one's place already."""
    try:
        with open_index(folder / CHROMA, NAME, embedder, passage_size=recipe.passage_size, late=recipe.late):
            return True
    except FingerprintMismatch:
        return False


def _settle(folder: Path, recipe: Recipe) -> None:
    write_recipe(folder, recipe)
    (folder / NEXT).unlink(missing_ok=True)
