"""A cluster of a head and two workers, of which something is killed in mid-run: the rows are those of one process.

Run by `pytest -m slow tests/adapters/test_ray_faults.py`, with two free cores and 8 GB of memory: about four minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.indexes import Server, assert_same, documents, rows, served
from tests.adapters.ray_clusters import ADDRESS, SMALL, kill, processes, quiet

from chroma_eddy import open_index
from eddy_embed import Embedder

pytestmark = pytest.mark.slow

MODEL = {"model_name": "eddy-tiny", "method": "plain:exit=1"}
SIZES = {"passage_size": 24}
COUNT = 240


@dataclass
class Cluster:
    """A head without processors of its own, two workers with two each."""

    inner: Any
    workers: list[Any]

    def add(self) -> None:
        self.workers.append(self.inner.add_node(num_cpus=2, object_store_memory=SMALL, node_ip_address=ADDRESS))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    import ray
    import ray.data
    from ray.cluster_utils import Cluster as Inner

    with quiet() as folder:
        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": SMALL, "node_ip_address": ADDRESS}
        inner = Inner(initialize_head=True, head_node_args={**head, "temp_dir": str(folder)})
        made = Cluster(inner, [])
        try:
            made.add()
            made.add()
            ray.init(address=inner.address, log_to_driver=False, _node_ip_address=ADDRESS)
            inner.wait_for_nodes()
            ray.data.DataContext.get_current().enable_progress_bars = False
            yield made
        finally:
            ray.shutdown()
            inner.shutdown()


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> dict:
    """What one process writes that nothing disturbs."""
    embedder = Embedder(MODEL["model_name"], method=MODEL["method"])
    with open_index(tmp_path_factory.mktemp("alone"), "notes", embedder, **SIZES) as index:
        index.upsert(documents(COUNT))
        return rows(index)


def kill_embedder(cluster: Cluster, server: Server) -> None:
    kill(processes("EmbedDocuments")[0])


def kill_node(cluster: Cluster, server: Server) -> None:
    cluster.inner.remove_node(cluster.workers.pop(), allow_graceful=False)
    cluster.add()  # as what watches over a cluster does


def kill_writer(cluster: Cluster, server: Server) -> None:
    kill(processes("ServerWriter")[0])


def kill_server(cluster: Cluster, server: Server) -> None:
    server.kill()
    time.sleep(3)
    server.start()


@pytest.mark.parametrize("disturb", [kill_embedder, kill_node, kill_writer, kill_server])
def test_whatever_is_killed_the_rows_are_those_of_one_process(
    disturb: Callable[[Cluster, Server], None], cluster: Cluster, alone: dict, tmp_path: Path
) -> None:
    from ray_eddy.ingesting import ingest

    done: list[int] = []

    with served(tmp_path / "server") as server:

        def progress(report: Any) -> None:
            done.append(report.done)
            if len(done) == 3:
                assert report.done < COUNT / 2
                disturb(cluster, server)

        given = {**MODEL, **SIZES, "batch_size": 4, "concurrency": 2, "num_cpus": 1}
        report = ingest(documents(COUNT), server.url, "notes", **given, progress=progress)
        assert report.done == COUNT and not report.refused and done[-1] == COUNT
        if disturb in (kill_embedder, kill_node):
            assert report.embedders_restarted >= 1
        if disturb is kill_writer:
            assert report.writer_restarted == 1
        if disturb is kill_server:
            assert report.waited > 1
        with open_index(server.url, "notes") as index:
            assert index.check() == {} and index.incomplete() == {}
            assert_same(alone, rows(index))
        again = ingest(documents(COUNT), server.url, "notes", **given)
        assert (again.written, again.unchanged) == (0, COUNT)
