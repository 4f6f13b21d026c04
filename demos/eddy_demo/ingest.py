"""Documents to a library: what is new is embedded and written, document by document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from eddy_demo.library import Library
from eddy_demo.recipe import POST, Recipe, holds_library

if TYPE_CHECKING:
    from eddy_demo.reading import Document, Reading
    from eddy_embed import Embedder, LongDocument
    from eddy_embed.postprocess import Post

GROUP_CHARACTERS = 100_000
"""Documents are embedded in groups of this size: enough for full batches, little to redo after an interruption."""

FIT_PASSAGES = 2_000
"""A method with post-processing is fitted on the first passages of a new library, on this many if there are as many."""

FEW = 50
"""Different passages below which fitted post-processing describes the sample more than the library."""

Progress = Callable[[float, int], None]
"""Called with the characters embedded so far, and the documents written."""


@dataclass(frozen=True)
class Report:
    """What an ingestion did.

    Attributes:
        embedder: What made the vectors, fitted if its method has something to fit: ask with this one.
        written: Documents embedded and written.
        passages: Passages written.
        tokens: Tokens embedded, prompts and placeholders not counted.
        fitted_on: Passages that post-processing was fitted on just now, 0 if there was nothing to fit.
        unfitted: Different passages of the library, counted up to `FEW`, if its vectors are stored without the
            post-processing of the model's default method; 0 otherwise.
    """

    embedder: Embedder
    written: int
    passages: int
    tokens: int
    fitted_on: int
    unfitted: int


def load_embedder(recipe: Recipe, folder: Path, device: str | None = None) -> Embedder:
    """The embedder that a recipe names, with what the library in the folder was fitted to."""
    from eddy_embed import Embedder

    post = folder / POST if holds_library(folder) and (folder / POST).exists() else None
    return Embedder(recipe.model, method=recipe.method, device=device, post=post)


def changed_documents(folder: Path, documents: Sequence[Document]) -> list[Document]:
    """The documents that the library lacks, has half-written or has in another state; without a library, all."""
    if not holds_library(folder):
        return list(documents)
    with Library(folder) as library:
        return [document for document in documents if not library.is_current(document)]


def gone_documents(folder: Path, paths: Sequence[Path], reading: Reading) -> dict[str, str]:
    """Keys and names of the library's documents that came from these paths and whose files, or rows, are gone.

    A file that is there but could not be read now is not gone; nor is a row, if any row could not be read.
    """
    if not holds_library(folder):
        return {}
    places = [path.resolve().as_posix() for path in paths]
    read = {document.key for document in reading.documents}
    with Library(folder) as library:
        entries = library.entries()
    return {
        key: entry.name
        for key, entry in entries.items()
        if key not in read
        and any(entry.origin == place or entry.origin.startswith((f"{place}/", f"{place}#")) for place in places)
        and not Path(entry.origin).exists()
        and not (reading.skipped and Path(entry.origin.rpartition("#")[0]).is_file())
    }


def remove_documents(folder: Path, keys: Iterable[str]) -> None:
    """Take documents out of the library."""
    with Library(folder) as library:
        for key in keys:
            library.remove(key)


def ingest(
    folder: Path, recipe: Recipe, embedder: Embedder, documents: Sequence[Document], progress: Progress
) -> Report:
    """Embed documents and write them, each one whole.

    Args:
        folder: Where the library is, or will be.
        recipe: As `choose_recipe` gave it.
        embedder: As `load_embedder` gave it.
        documents: What to write, at least one; documents of the same origin are replaced.
        progress: Told how far it is.

    Raises:
        LibraryMismatch: The library there was made with other weights or settings.
        IncompatibleMethods: The method gives no passage vectors out of a pass over the document.
        InvalidParameter: The method was asked for and has post-processing, and there are too few passages to fit it on.
    """
    writer = _Writer(folder, recipe, embedder, progress)
    try:
        for group in _groups(documents):
            writer.take(group, _embed(writer, group, recipe, progress))
        return writer.finish()
    finally:
        writer.close()


class _Writer:
    """Writes documents as they come, or holds the first of them until post-processing can be fitted."""

    def __init__(self, folder: Path, recipe: Recipe, embedder: Embedder, progress: Progress) -> None:
        self.embedder = embedder
        self.embedded = self.written = 0
        self._folder, self._recipe, self._progress = folder, recipe, progress
        self._passages = self._tokens = self._fitted_on = 0
        self._held: list[tuple[Document, LongDocument]] = []
        self._library: Library | None = None
        self._post = None
        if embedder.method.post is not None and embedder.method.post.learns and not holds_library(folder):
            self._post = embedder.method.post
            self.embedder = embedder.with_post(None)

    def take(self, group: Sequence[Document], embedded: Sequence[LongDocument]) -> None:
        """Documents with their vectors."""
        self._held += zip(group, embedded, strict=True)
        self.embedded += sum(len(document.text) for document in group)
        if self._post is None or sum(len(result.passages) for _, result in self._held) >= FIT_PASSAGES:
            self._flush()

    def finish(self) -> Report:
        """Write what is left."""
        self._flush()
        unfitted = 0
        if self._library is not None and self._recipe.default not in ("", self._recipe.method):
            unfitted = _different(self._library)
        return Report(self.embedder, self.written, self._passages, self._tokens, self._fitted_on, unfitted)

    def close(self) -> None:
        """Let go of the library's files."""
        if self._library is not None:
            self._library.close()

    def _flush(self) -> None:
        if self._post is not None:
            self._fit(self._post)
        if self._library is None:  # only now is it certain that there is something to write
            self._library = self._open()
        for document, result in self._held:
            self._library.write(document, result)
            self.written += 1
            self._passages += len(result.passages)
            self._tokens += result.n_tokens
            self._progress(self.embedded, self.written)
        self._held = []

    def _fit(self, post: Post) -> None:
        from eddy_embed.postprocess import Moments, fit

        self._post = None
        texts = {document.text[each.start : each.end] for document, held in self._held for each in held.passages}
        if self._recipe.default and len(texts) < FEW:
            # Nobody asked for post-processing: without it the vectors are worse than they could be, but sound.
            self._recipe = replace(self._recipe, method=str(self.embedder.method))
            return
        moments = Moments(self.embedder.dimension)
        for _, result in self._held:
            moments.add(np.stack([passage.vector for passage in result.passages]))
        fitted = replace(fit(post, moments), maker=self.embedder.maker)
        self._held = [(document, result.processed(fitted)) for document, result in self._held]
        self.embedder = self.embedder.with_post(fitted)
        self._fitted_on = moments.count

    def _open(self) -> Library:
        recipe = replace(
            self._recipe,
            fingerprint=self._recipe.fingerprint or self.embedder.fingerprint,
            dimension=self.embedder.dimension,
        )
        library = Library.create(self._folder, recipe, self.embedder.post)
        library.check_embedder(self.embedder)
        return library


def _embed(writer: _Writer, group: Sequence[Document], recipe: Recipe, progress: Progress) -> list[LongDocument]:
    size = sum(len(document.text) for document in group)
    return writer.embedder.encode_long(
        [document.text for document in group],
        passage_size=recipe.passage_size,
        late=recipe.late,
        progress=lambda done, total, stage: progress(writer.embedded + size * done / max(total, 1), writer.written),
    )


def _different(library: Library) -> int:
    texts: set[str] = set()
    for _, text in library.passages():
        texts.add(text)
        if len(texts) == FEW:
            break
    return len(texts)


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
