"""Documents to a library: what is new is embedded and written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from chroma_eddy import Entry, Index, NoIndex, open_index
from eddy_demo.library.index import NAME, open_library, passage_texts, stored
from eddy_demo.library.recipe import CHROMA, Recipe, holds_library, write_recipe

if TYPE_CHECKING:
    from eddy_demo.library.ray_cluster import Cluster
    from eddy_demo.readers.documents import Document, Reading
    from eddy_embed import Embedder

FEW = 50
"""Different passages below which fitted post-processing describes the sample more than the library."""

Progress = Callable[[float, int], None]
"""Called with the characters embedded so far, and the documents written."""


@dataclass(frozen=True)
class Report:
    """What an ingestion did.

    Attributes:
        embedder: What made the vectors, fitted if its method has something to fit: ask with this one.
        written: Documents written.
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


def load_embedder(recipe: Recipe, device: str | None = None) -> Embedder:
    """The embedder that a recipe names; what its library was fitted to is in the library."""
    from eddy_embed import Embedder

    return Embedder(recipe.model, method=recipe.method, device=device)


def changed_documents(folder: Path, documents: Sequence[Document]) -> list[Document]:
    """The documents that the library lacks, has half-written or has in another state; without a library, all."""
    known = _entries(folder)
    return [
        document
        for document in documents
        if (entry := known.get(document.key)) is None or entry.other or entry.digest != stored(document).digest
    ]


def gone_documents(folder: Path, paths: Sequence[Path], reading: Reading) -> dict[str, str]:
    """Keys and names of the library's documents that came from these paths and whose files, or rows, are gone.

    A file that is there but could not be read now is not gone; nor is a row, if any row could not be read.
    """
    places = [path.resolve().as_posix() for path in paths]
    read = {document.key for document in reading.documents}
    gone = {}
    for key, entry in _entries(folder).items():
        origin = entry.metadata["origin"]
        ours = any(origin == place or origin.startswith((f"{place}/", f"{place}#")) for place in places)
        unread = reading.skipped and Path(origin.rpartition("#")[0]).is_file()
        if key not in read and ours and not Path(origin).exists() and not unread:
            gone[key] = entry.metadata["name"]
    return gone


def remove_documents(folder: Path, keys: Iterable[str]) -> None:
    """Take documents out of the library."""
    with open_index(folder / CHROMA, NAME) as index:
        index.remove(keys)


def ingest(
    folder: Path,
    recipe: Recipe,
    embedder: Embedder,
    documents: Sequence[Document],
    progress: Progress,
    cluster: Cluster | None = None,
) -> Report:
    """Embed documents and write them, each one whole.

    Args:
        folder: Where the library is, or will be.
        recipe: As `choose_recipe` gave it.
        embedder: As `load_embedder` gave it.
        documents: What to write, at least one; documents of the same origin are replaced.
        progress: Told how far it is.
        cluster: Where the texts are embedded; None: here.

    Raises:
        LibraryMismatch: The library there was made with other weights or settings.
        IncompatibleMethods: The method gives no passage vectors out of a pass over the document.
        InvalidParameter: The method was asked for and has post-processing, and there are too few passages to fit it on.
    """

    def begin(index: Index) -> None:
        # Before any row: a folder with rows and no recipe would be nobody's.
        write_recipe(folder, replace(recipe, method=str(index.embedder.method)))

    with open_library(folder, embedder, recipe) as index:
        # Nobody asked for a default's post-processing: without it the vectors are worse than they could be, but sound.
        least = FEW if recipe.default else 0
        if cluster is None:
            made = index.upsert(map(stored, documents), progress, fit_least=least, begin=begin)
        else:
            made = cluster.upsert(index, recipe, documents, progress, fit_least=least, begin=begin)
        without = recipe.default not in ("", str(index.embedder.method))
        unfitted = min(len(set(passage_texts(index))), FEW) if without else 0
        written = made.written + made.relabelled
        return Report(index.embedder, written, made.passages, made.tokens, made.fitted_on, unfitted)


def _entries(folder: Path) -> dict[str, Entry]:
    if not holds_library(folder):
        return {}
    try:
        with open_index(folder / CHROMA, NAME) as index:
            return index.entries()
    except NoIndex:  # its first ingestion was interrupted before anything was written
        return {}
