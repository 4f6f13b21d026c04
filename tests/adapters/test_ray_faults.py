"""Something is killed in mid-run: the rows in the index are those of one process.

Run by `pytest -m slow tests/adapters/test_ray_faults.py`, with two free cores and 8 GB of memory: some minutes.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.indexes import assert_same, documents, rows, served
from tests.adapters.ray_clusters import ADDRESS, SMALL, dataset, kill, processes, quiet

from chroma_eddy import index as chroma_index
from chroma_eddy import open_index
from chroma_eddy.rows import DOCUMENTS, MAIN
from eddy_embed import Embedder

pytestmark = pytest.mark.slow

COUNT = 240
MODEL = {"model_name": "eddy-tiny", "method": "plain:exit=1"}
GIVEN = {**MODEL, "passage_size": 24, "batch_size": 4, "concurrency": 2}


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
        Path("/tmp/ray").mkdir(exist_ok=True)  # where Ray notes its address, and does not make the folder
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
    with open_index(
        tmp_path_factory.mktemp("alone"), "notes", Embedder("eddy-tiny", method="plain:exit=1"), passage_size=24
    ) as index:
        index.upsert(documents(COUNT))
        return rows(index)


def kill_embedder(cluster: Cluster) -> None:
    kill(processes("MapBatches(_EmbedNew)")[0])


def kill_node(cluster: Cluster) -> None:
    cluster.inner.remove_node(cluster.workers.pop(), allow_graceful=False)
    cluster.add()  # as what watches over a cluster does


@pytest.mark.parametrize("disturb", [kill_embedder, kill_node])
def test_whatever_is_killed_the_rows_are_those_of_one_process(
    disturb: Callable[[Cluster], None], cluster: Cluster, alone: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray_eddy import ingest

    monkeypatch.setattr(chroma_index, "GROUP_DOCUMENTS", 4)  # so that the first are written early
    embedders: set[int] = set()

    def slowly(batch: Any) -> Any:
        time.sleep(0.3)  # so that most are still to be embedded by then
        return batch

    def progress(_: float, written: int) -> None:
        first = not embedders
        embedders.update(each.pid for each in processes("MapBatches(_EmbedNew)"))
        if first:
            assert 0 < written < COUNT / 4 and len(embedders) == 2
            disturb(cluster)

    given = dataset(documents(COUNT)).repartition(target_num_rows_per_block=4).map_batches(slowly, batch_size=4)
    report = ingest(given, tmp_path, "notes", **GIVEN, progress=progress)
    assert (report.written, report.refused) == (COUNT, []) and len(embedders) > 2, "another one has gone on"
    with open_index(tmp_path, "notes") as index:
        assert index.check() == {} and index.incomplete() == []
        assert_same(alone, rows(index))


CODE = """
import logging, sys, ray
from tests.adapters.indexes import documents
from tests.adapters.ray_clusters import dataset
from chroma_eddy import index as chroma_index
from ray_eddy import ingest
address, place, own, given = sys.argv[1], sys.argv[2], sys.argv[3], eval(sys.argv[4])
chroma_index.GROUP_DOCUMENTS = 4
ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, _node_ip_address=own)
told = lambda _, written: print(written, flush=True)
report = ingest(dataset(documents(int(sys.argv[5]))), place, "notes", **given, progress=told)
print("end", report.written, report.unchanged, flush=True)
"""


def test_a_program_that_is_killed_is_started_again(cluster: Cluster, alone: dict, tmp_path: Path) -> None:
    """Into a server, which goes on."""
    with served(tmp_path / "server") as server:
        command = [sys.executable, "-c", CODE, cluster.inner.address, server.url, ADDRESS, repr(GIVEN), str(COUNT)]
        first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert first.stdout is not None
        said = [first.stdout.readline() for _ in range(5)]
        first.kill()
        assert 0 < int(said[-1]) < COUNT
        first.communicate()
        second = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        word, written, unchanged = second.stdout.splitlines()[-1].split()
        assert word == "end" and int(written) + int(unchanged) == COUNT and int(unchanged) > 0 < int(written)
        with open_index(server.url, "notes") as index:
            assert index.check() == {} and index.incomplete() == []
            assert_same({kind: alone[kind] for kind in (MAIN, DOCUMENTS)}, rows(index))
