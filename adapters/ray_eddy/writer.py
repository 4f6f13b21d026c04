"""The one who writes: documents that come with their vectors, into an index, as its own writer does it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from chroma_eddy import Document, Index, WriteReport, open_index
from chroma_eddy.recipe import is_unfitted
from chroma_eddy.writing import Writer, parts_of
from ray_eddy.embedding import load, raw
from ray_eddy.retry import patiently
from ray_eddy.row_codec import document_of, unpacked

if TYPE_CHECKING:
    import pyarrow as pa

    from eddy_embed import LongDocument
    from eddy_embed.document import Part


@dataclass(frozen=True)
class About:
    """What embedders must know of the index that they work for.

    Attributes:
        sizes: `passage_size` and `late`.
        parts: Which vectors it has.
        fingerprint: Of its embedder, post-processing left out.
        unfitted: Whether its post-processing is yet to be fitted, on the first passages that come.
    """

    sizes: Mapping[str, Any]
    parts: tuple[Part, ...]
    fingerprint: str
    unfitted: bool


@dataclass(frozen=True)
class Receipt:
    """What the writer has done.

    Attributes:
        report: As an index gives it.
        process: Which process it was: another one after a restart.
        waited: Seconds for which the server did not answer.
    """

    report: WriteReport = field(default_factory=WriteReport)
    process: int = 0
    waited: float = 0.0


class _Delivered(Writer):
    """Writes documents that were embedded elsewhere."""

    def __init__(self, index: Index, results: Mapping[str, LongDocument | None], **more: Any) -> None:
        super().__init__(index, **more)
        self._results = results

    def encoded(self, group: Sequence[Document], *, raw: bool) -> Sequence[LongDocument]:
        """Their vectors, which came with them; those that an embedder did not make are made here.

        That is where the index has changed since the documents were sorted out.
        """
        found = [self._results.get(each.id) for each in group]
        here = [each for each, result in zip(group, found, strict=True) if result is None]
        made = dict(zip((each.id for each in here), super().encoded(here, raw=raw) if here else (), strict=True))
        post, normalize = self._index.embedder.post, self._index.embedder.normalize
        if not raw and post is not None:
            found = [None if each is None else each.processed(post, normalize) for each in found]
        return [made[each.id] if result is None else result for each, result in zip(group, found, strict=True)]


class IndexWriter:
    """Writes deliveries to an index that is open; the same one twice is written once."""

    def __init__(
        self,
        index: Index,
        *,
        patience: float = 0.0,
        fit_least: int = 0,
        begin: Callable[[Index], None] | None = None,
    ) -> None:
        """Write nothing yet.

        Args:
            index: With an embedder.
            patience: Seconds to wait for a server that does not answer.
            fit_least: As in `Index.upsert`.
            begin: Likewise.
        """
        self.index, self._patience = index, patience
        self._more = {"fit_least": fit_least, "begin": begin}

    def about(self) -> About:
        """What embedders must know."""
        index = self.index
        recipe = index.recipe
        sizes = {"passage_size": recipe.passage_size, "late": recipe.late}
        return About(sizes, parts_of(recipe), raw(index.embedder).fingerprint, is_unfitted(index.embedder))

    def write(self, table: pa.Table) -> Receipt:
        """Write documents, each with its vectors.

        Args:
            table: As `EmbedDocuments` gives it, without refused ones.

        Raises:
            StorageError: The database failed.
        """
        rows = table.select(["id", "text", "metadata", "page_starts"]).to_pylist()
        documents = [document_of(row) for row in rows]
        results = {each.id: result for each, result in zip(documents, unpacked(table), strict=True)}
        waited = [0.0]

        def once() -> WriteReport:
            with self.index.writing():
                return _Delivered(self.index, results, **self._more).run(documents)

        report = patiently(once, self._patience, lambda seconds: waited.__setitem__(0, seconds))
        return Receipt(report, os.getpid(), waited[0])


class ServerWriter(IndexWriter):
    """A writer to a server, as an actor of its own: killed, it is started again, and does what it was at again."""

    def __init__(
        self,
        place: str,
        name: str,
        model_name: str,
        settings: Mapping[str, Any],
        sizes: Mapping[str, Any],
        patience: float,
    ) -> None:
        """Open the index, or begin it.

        Args:
            place: The server's URL.
            name: The index's.
            model_name: As for `Embedder`.
            settings: Likewise.
            sizes: As `open_index` has them.
            patience: Seconds to wait for a server that does not answer.
        """
        # It knows by the model what vectors follow from, and leaves cards to the embedders.
        embedder = load(model_name, {**settings, "device": "cpu"})
        super().__init__(patiently(lambda: open_index(place, name, embedder, **sizes), patience), patience=patience)
