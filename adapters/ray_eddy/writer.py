"""Write documents that arrive with their vectors to an index, through the index's own writer."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from chroma_eddy import Document, Index, WriteReport, open_index
from chroma_eddy.write.writer import Writer, vector_parts
from eddy_embed import LongDocument
from eddy_embed.integrations import Part, is_unfitted
from ray_eddy.embedding import load_embedder, without_fitted_post
from ray_eddy.retry import retry_unreachable
from ray_eddy.row_codec import to_document, unpack


@dataclass(frozen=True)
class IndexInfo:
    """What embedders need to know about the index."""

    sizes: Mapping[str, Any]  # `passage_size` and `late`
    parts: tuple[Part, ...]
    fingerprint: str  # without post-processing
    unfitted: bool  # whether post-processing is still to be fitted, on the first passages


@dataclass(frozen=True)
class Receipt:
    """Result of a write."""

    report: WriteReport = field(default_factory=WriteReport)
    process: int = 0  # process id of the writer; another one after a restart
    waited: float = 0.0  # seconds without an answer from the server


class _DeliveredWriter(Writer):
    """Writes documents that were embedded elsewhere."""

    def __init__(self, index: Index, results: Mapping[str, LongDocument | None], **options: Any) -> None:
        super().__init__(index, **options)
        self._results = results

    def encoded(self, group: Sequence[Document], *, raw: bool) -> Sequence[LongDocument]:
        """Give the delivered vectors; embed documents without them, for which the index has changed meanwhile."""
        results = [self._results.get(each.id) for each in group]
        missing = [each for each, result in zip(group, results, strict=True) if result is None]
        embedded = super().encoded(missing, raw=raw) if missing else ()
        by_id = dict(zip((each.id for each in missing), embedded, strict=True))
        post, normalize = self._index.embedder.post, self._index.embedder.normalize
        if not raw and post is not None:
            results = [None if each is None else each.processed(post, normalize) for each in results]
        return [by_id[each.id] if result is None else result for each, result in zip(group, results, strict=True)]


class IndexWriter:
    """Writes deliveries to an open index; a repeated delivery changes nothing."""

    def __init__(
        self, index: Index, *, patience: float = 0.0, fit_least: int = 0, begin: Callable[[Index], None] | None = None
    ) -> None:
        self.index, self._patience = index, patience
        self._options = {"fit_least": fit_least, "begin": begin}

    def index_info(self) -> IndexInfo:
        """Describe the index to embedders."""
        recipe, embedder = self.index.settings, self.index.embedder
        sizes = {"passage_size": recipe.passage_size, "late": recipe.late}
        fingerprint = without_fitted_post(embedder).fingerprint
        return IndexInfo(sizes, vector_parts(recipe), fingerprint, is_unfitted(embedder))

    def write(self, table: pa.Table) -> Receipt:
        """Write documents, rows of `EmbedDocuments`, each with its vectors."""
        rows = table.select(["id", "text", "metadata", "page_starts"]).to_pylist()
        documents = [to_document(row) for row in rows]
        results = {each.id: result for each, result in zip(documents, unpack(table), strict=True)}
        waited = [0.0]

        def write_once() -> WriteReport:
            with self.index.writing():
                return _DeliveredWriter(self.index, results, **self._options).run(documents)

        report = retry_unreachable(write_once, self._patience, waited.append)
        return Receipt(report, os.getpid(), waited[-1])


class ServerWriter(IndexWriter):
    """A writer to a server, as an actor: Ray restarts a killed one and repeats its unfinished write."""

    def __init__(
        self,
        place: str,
        name: str,
        model_name: str,
        settings: Mapping[str, Any],
        sizes: Mapping[str, Any],
        patience: float,
    ) -> None:
        # The index needs the embedder for its fingerprint and for few texts; GPUs are for the embedders.
        embedder = load_embedder(model_name, {**settings, "device": "cpu"})
        index = retry_unreachable(lambda: open_index(place, name, embedder, **sizes), patience)
        super().__init__(index, patience=patience)
