"""Documents to a library, embedded on a Ray cluster and written here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from eddy_demo.errors import DemoError

if TYPE_CHECKING:
    from chroma_eddy import Index
    from eddy_demo.reading import Document
    from eddy_demo.recipe import Recipe
    from ray_eddy.ingestion import IngestReport


def asked_cluster(
    address: str | None, concurrency: int | None, num_gpus: float | None, device: str | None
) -> Cluster | None:
    """The cluster that the command line asks for; None where it asks for none.

    Raises:
        DemoError: Ray is not installed.
    """
    if address is None:
        return None
    if find_spec("ray") is None:
        raise DemoError('ray is not installed; --ray needs an extra: pip install "eddy-embed[ray]"')
    return Cluster(address, concurrency, num_gpus, device)


@dataclass(frozen=True)
class Cluster:
    """Where texts are embedded.

    Attributes:
        address: As `ray_eddy` takes it: "auto", "local", or host and port.
        concurrency: Embedders; None: what there is room for.
        num_gpus: Graphics cards for each.
        device: As for `Embedder`.
    """

    address: str
    concurrency: int | None = None
    num_gpus: float | None = None
    device: str | None = None

    def upsert(
        self,
        index: Index,
        recipe: Recipe,
        documents: Sequence[Document],
        progress: Callable[[float, int], None],
        *,
        fit_least: int,
        begin: Callable[[Index], None],
    ) -> IngestReport:
        """As `Index.upsert`.

        Raises:
            DemoError: A document could not be embedded; the others are written.
        """
        from eddy_demo.library import stored
        from ray_eddy.cluster import connect
        from ray_eddy.ingestion import EmbedOptions, ingest_into

        characters = sum(len(document.text) for document in documents)

        def told(report: IngestReport) -> None:
            progress(characters * report.done / len(documents), report.written)

        with connect(self.address):
            settings = {"method": recipe.method, "device": self.device}
            work = EmbedOptions(recipe.model, settings, self.concurrency, {"num_gpus": self.num_gpus}, progress=told)
            report = ingest_into(index, [stored(each) for each in documents], work, fit_least=fit_least, begin=begin)
        if report.refused:
            reasons = "\n".join(f"  {id_}: {reason}" for id_, reason in report.refused)
            raise DemoError(f"{len(report.refused)} documents could not be embedded:\n{reasons}")
        return report
