"""Embed documents on a Ray cluster, and write them in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddy_demo.errors import DemoError
from eddy_demo.library.settings import LibrarySettings
from eddy_demo.readers.documents import SourceDocument
from eddy_embed.integrations import check_installed

if TYPE_CHECKING:
    from chroma_eddy import Index
    from ray_eddy.ingestion import IngestReport


def ray_cluster(
    address: str | None, concurrency: int | None, num_gpus: float | None, device: str | None
) -> RayCluster | None:
    """Return the cluster that the command line requests; None without `--ray`."""
    if address is None:
        return None
    check_installed("ray", "ray")
    return RayCluster(address, concurrency, num_gpus, device)


@dataclass(frozen=True)
class RayCluster:
    """A Ray cluster that embeds texts."""

    address: str  # "auto", "local", or host and port
    concurrency: int | None = None  # number of embedders; None uses all resources
    num_gpus: float | None = None  # for each embedder
    device: str | None = None

    def upsert(
        self,
        index: Index,
        settings: LibrarySettings,
        documents: Sequence[SourceDocument],
        progress: Callable[[float, int], None],
        *,
        fit_least: int,
        begin: Callable[[Index], None],
    ) -> IngestReport:
        """Embed and write documents as `Index.upsert` does; fail after that if some could not be embedded."""
        from eddy_demo.library.index import to_index_document
        from ray_eddy.cluster import connect
        from ray_eddy.ingestion import EmbedOptions, ingest_into

        characters = sum(len(document.text) for document in documents)

        def report_progress(report: IngestReport) -> None:
            progress(characters * report.done / len(documents), report.written)

        with connect(self.address):
            embedder = {"method": settings.method, "device": self.device}
            work = EmbedOptions(
                settings.model, embedder, self.concurrency, {"num_gpus": self.num_gpus}, progress=report_progress
            )
            report = ingest_into(
                index, [to_index_document(each) for each in documents], work, fit_least=fit_least, begin=begin
            )
        if report.refused:
            reasons = "\n".join(f"  {id_}: {reason}" for id_, reason in report.refused)
            raise DemoError(f"{len(report.refused)} documents could not be embedded:\n{reasons}")
        return report
