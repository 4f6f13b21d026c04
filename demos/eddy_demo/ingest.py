"""Documents to a library: what is new is embedded and written, document by document."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from eddy_demo.library import Library
from eddy_demo.recipe import Recipe, holds_library

if TYPE_CHECKING:
    from eddy_demo.reading import Document
    from eddy_embed import Embedder

GROUP_CHARACTERS = 100_000
"""Documents are embedded in groups of this size: enough for full batches, little to redo after an interruption."""

Progress = Callable[[float, int], None]
"""Called with the characters done so far, and the documents."""


@dataclass(frozen=True)
class Report:
    """What an ingestion did.

    Attributes:
        written: Documents embedded and written.
        unchanged: Documents that were there already.
        passages: Passages written.
        tokens: Tokens embedded, prompts and placeholders not counted.
    """

    written: int
    unchanged: int
    passages: int
    tokens: int


def load_embedder(recipe: Recipe, device: str | None = None) -> Embedder:
    """The embedder that a recipe names."""
    from eddy_embed import Embedder

    return Embedder(recipe.model, method=recipe.method, device=device)


def changed_documents(folder: Path, documents: Sequence[Document]) -> list[Document]:
    """The documents that the library lacks, has half-written or has in another state; without a library, all."""
    if not holds_library(folder):
        return list(documents)
    with Library(folder) as library:
        return [document for document in documents if not library.is_current(document)]


def ingest(
    folder: Path, recipe: Recipe, embedder: Embedder, documents: Sequence[Document], progress: Progress
) -> Report:
    """Embed documents and write them, each one whole.

    Args:
        folder: Where the library is, or will be.
        recipe: As `choose_recipe` gave it.
        embedder: As `load_embedder` gave it.
        documents: What to write; documents of the same origin are replaced.
        progress: Told how far it is.

    Raises:
        LibraryMismatch: The library there was made with other weights or settings.
        IncompatibleMethods: The method gives no passage vectors out of a pass over the document.
    """
    recipe = replace(recipe, fingerprint=recipe.fingerprint or embedder.fingerprint, dimension=embedder.dimension)
    passages = tokens = done = written = 0
    library: Library | None = None
    try:
        for group in _groups(documents):
            embedded = embedder.encode_long(
                [document.text for document in group],
                passage_size=recipe.passage_size,
                late=recipe.late,
                progress=_share_of(progress, group, done, written),
            )
            if library is None:  # only now is it certain that there is something to write
                library = Library.create(folder, recipe)
                library.check_embedder(embedder)
            for document, result in zip(group, embedded, strict=True):
                library.write(document, result)
                passages += len(result.passages)
                tokens += result.n_tokens
                written += 1
                done += len(document.text)
                progress(done, written)
    finally:
        if library is not None:
            library.close()
    return Report(written=written, unchanged=0, passages=passages, tokens=tokens)


def _share_of(
    progress: Progress, group: Sequence[Document], done: int, written: int
) -> Callable[[int, int, str], None]:
    """What the embedder reports of a group, as a share of the whole."""
    size = sum(len(document.text) for document in group)
    return lambda now, total, stage: progress(done + size * now / max(total, 1), written)


def _groups(documents: Sequence[Document]) -> Iterator[list[Document]]:
    group: list[Document] = []
    size = 0
    for document in documents:
        if group and size + len(document.text) > GROUP_CHARACTERS:
            yield group
            group, size = [], 0
        group.append(document)
        size += len(document.text)
    if group:
        yield group
