"""A cluster of a head and two workers, of which something is killed in mid-run: the rows are those of one process.

Run by `pytest -m slow tests/adapters/test_ray_faults.py`, with two free cores and 8 GB of memory: about six minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.indexes import Server, assert_same, documents, rows, served
from tests.adapters.ray_clusters import ADDRESS, SMALL, kill, one_node, processes, quiet
from tests.adapters.ray_stages import Fast, Slow

from chroma_eddy import Document, WriteReport, open_index
from eddy_embed import Embedder
from eddy_embed.errors import FingerprintMismatch
from ray_eddy import ingestion
from ray_eddy.writer import IndexWriter, Receipt

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


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingestion, "EmbedDocuments", Slow)


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> dict:
    """What one process writes that nothing disturbs."""
    embedder = Embedder(MODEL["model_name"], method=MODEL["method"])
    with open_index(tmp_path_factory.mktemp("alone"), "notes", embedder, **SIZES) as index:
        index.upsert(documents(COUNT))
        return rows(index)


def kill_embedder(cluster: Cluster, server: Server) -> None:
    kill(processes("MapBatches(Slow)")[0])


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
    disturb: Callable[[Cluster, Server], None], cluster: Cluster, slow: None, alone: dict, tmp_path: Path
) -> None:
    from ray_eddy.ingestion import ingest

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


def test_all_of_it_in_one_run_that_reads_its_documents_on_the_cluster(
    cluster: Cluster, slow: None, tmp_path: Path
) -> None:
    """What a lost machine had read is read again, too."""
    from ray_eddy import ingest, read_documents

    lines = [json.dumps({"id": each.id, "text": each.text, **each.metadata}) for each in documents(COUNT)]
    for at in range(0, COUNT, COUNT // 3):
        (tmp_path / f"{at}.jsonl").write_text("\n".join(lines[at : at + COUNT // 3]), encoding="utf-8")
    plain = [replace(each, page_starts=()) for each in documents(COUNT)]
    embedder = Embedder(MODEL["model_name"], method=MODEL["method"])
    with open_index(tmp_path / "alone", "notes", embedder, **SIZES) as index:
        index.upsert(plain)
        expected = rows(index)
    left = [kill_embedder, kill_node, kill_writer, kill_server, kill_writer]
    with served(tmp_path / "server") as server:

        def progress(report: Any) -> None:
            progress.calls += 1
            if left and progress.calls % 2 == 0:
                left.pop(0)(cluster, server)

        progress.calls = 0
        given = {**MODEL, **SIZES, "batch_size": 4, "concurrency": 2, "num_cpus": 1}
        report = ingest(read_documents(tmp_path.glob("*.jsonl")), server.url, "notes", **given, progress=progress)
        assert report.done == COUNT and not report.refused and not left
        assert report.embedders_restarted >= 1 and report.writer_restarted >= 2 and report.waited > 1
        with open_index(server.url, "notes") as index:
            assert index.check() == {}
            assert_same(expected, rows(index))


def test_a_program_that_is_killed_is_started_again(cluster: Cluster, alone: dict, tmp_path: Path) -> None:
    code = """
import sys, ray, logging
from tests.adapters.indexes import documents
from ray_eddy import ingest
ray.init(address=sys.argv[1], log_to_driver=False, logging_level=logging.ERROR, _node_ip_address=sys.argv[3])
given = dict(model_name="eddy-tiny", method="plain:exit=1", passage_size=24, batch_size=4, concurrency=2, num_cpus=1)
report = ingest(documents(int(sys.argv[4])), sys.argv[2], "notes", **given,
                progress=lambda report: print(report.done, flush=True))
print("end", report.written, report.unchanged, flush=True)
"""
    with served(tmp_path / "server") as server:
        command = [sys.executable, "-c", code, cluster.inner.address, server.url, ADDRESS, str(COUNT)]

        def started() -> subprocess.Popen[str]:
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

        first = started()
        said = [first.stdout.readline() for _ in range(5)]
        first.kill()
        assert 0 < int(said[-1]) < COUNT
        first.communicate()
        second = started()
        out, _ = second.communicate()
        word, written, unchanged = out.splitlines()[-1].split()
        assert word == "end" and int(written) + int(unchanged) == COUNT and int(unchanged) > 0 < int(written)
        with open_index(server.url, "notes") as index:
            assert index.check() == {} and index.incomplete() == {}
            assert_same(alone, rows(index))
        with pytest.raises(FingerprintMismatch, match=r"^Index '.*' was made with "):
            ingestion.ingest(documents(2), server.url, "notes", **{**MODEL, "method": "plain:exit=2"}, num_cpus=1)


def test_a_slow_writer_holds_the_embedders_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of all documents would fill the object store twice; finished ones keep to a share of it."""
    count, most = tmp_path / "count", 0
    monkeypatch.setenv("EDDY_TEST_COUNT", str(count))
    monkeypatch.setattr(ingestion, "EmbedDocuments", Fast)
    given = [Document(f"{at}", "A text.") for at in range(320)]
    written = 0

    def write(self: IndexWriter, table: Any) -> Receipt:
        nonlocal written, most
        time.sleep(0.25)
        written += table.num_rows
        most = max(most, count.stat().st_size - written)
        return Receipt(WriteReport(written=table.num_rows))

    monkeypatch.setattr(IndexWriter, "write", write)
    with one_node(), open_index(tmp_path / "index", "notes", Embedder("eddy-tiny", method="plain:exit=1")) as index:
        work = ingestion.EmbedOptions("eddy-tiny", {"method": "plain:exit=1"}, 1, {}, batch_size=4)
        report = ingestion.ingest_into(index, given, work)
    assert report.written == 320
    assert 8 < most < 160, f"{most} documents were embedded and not written"
