"""Ray: the vectors of one process from actors, and its rows in an index; what is bad is named."""

from __future__ import annotations

import logging
import pickle
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.adapters.indexes import assert_same, documents, rows

from chroma_eddy import Document, open_index
from chroma_eddy import index as chroma_index
from eddy_embed import Embedder
from eddy_embed.errors import FingerprintMismatch, InvalidParameter, InvalidText

ADDRESS = "127.0.0.2"
"""Loopback, under the one of its names that Ray does not replace by the machine's address in the network."""
TOKEN = secrets.token_hex(32)
"""Else Ray leaves one in the user's folder. A process keeps its first."""
SMALL = 80 * 2**20
"""Bytes of an object store: about the least that Ray takes."""


@contextmanager
def quiet() -> Iterator[Path]:
    """A folder for a cluster's files, whose sockets need a short name; and an environment in which it keeps silent."""
    folder = Path(tempfile.mkdtemp(prefix="eddy", dir="/tmp"))
    before = signal.getsignal(signal.SIGTERM)  # Ray has it end the process
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_TOKEN", TOKEN)
        patch.setenv("RAY_worker_niceness", "0")  # else other tests that run beside leave them nothing
        try:
            yield folder
        finally:
            signal.signal(signal.SIGTERM, before)
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def one_node(cpus: int = 2) -> Iterator[None]:
    """A cluster of one node, to which this process is connected."""
    import ray
    import ray.data

    with quiet() as folder:
        ray.init(
            num_cpus=cpus,
            include_dashboard=False,
            object_store_memory=SMALL,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _node_ip_address=ADDRESS,
            _temp_dir=str(folder),
        )
        ray.data.DataContext.get_current().enable_progress_bars = False
        try:
            yield
        finally:
            ray.shutdown()


def dataset(given: list[Document]) -> Any:
    """Documents as rows, their metadata as columns."""
    import ray.data

    return ray.data.from_items(
        [{"id": each.id, "text": each.text, "page_starts": list(each.page_starts), **each.metadata} for each in given]
    )


MODEL = {"model_name": "eddy-tiny", "method": "plain:exit=1"}
TEXTS = [document.text for document in documents(4)]


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder("eddy-tiny", method="plain:exit=1")


@pytest.fixture(scope="module")
def cluster():
    with one_node():
        yield


@pytest.fixture
def eddy_embed_class():
    """The class, imported here: Ray takes a second that no other test should wait for."""
    from ray_eddy import EddyEmbed

    return EddyEmbed


def as_batch(texts: list[Any], kind: str) -> Any:
    table = pa.table({"id": [f"d{at}" for at in range(len(texts))], "text": texts, "shelf": list(range(len(texts)))})
    if kind == "numpy":
        return {name: np.array(table.column(name).to_pylist(), object) for name in table.column_names}
    return table.to_pandas() if kind == "pandas" else table


def matrix(table: pa.Table) -> np.ndarray:
    return np.stack([np.float32(vector) for vector in table.column("vector").to_pylist()])


# --- One actor, without a cluster


@pytest.mark.parametrize("kind", ["pyarrow", "numpy", "pandas"])
def test_an_actor_gives_the_vectors_of_the_library(kind, embedder, eddy_embed_class):
    found = eddy_embed_class(**MODEL)(as_batch(TEXTS, kind))
    assert found.schema.field("vector").type == pa.list_(pa.float32(), embedder.dimension)
    assert found.column("id").to_pylist() == [f"d{at}" for at in range(4)]
    assert found.column("shelf").to_pylist() == list(range(4)) and found.column("text").to_pylist() == TEXTS
    expected = np.stack([document.vector for document in embedder.encode_long(TEXTS, parts=("document",))])
    np.testing.assert_allclose(matrix(found), expected, atol=1e-5)


def test_parts_of_a_document_are_rows_with_offsets(embedder, eddy_embed_class):
    actor = eddy_embed_class(**MODEL, parts=("document", "passages", "sentences"), passage_size=24)
    found = actor(as_batch(TEXTS, "pyarrow")).to_pylist()
    for at, text in enumerate(TEXTS):
        own = embedder.encode_long(text, passage_size=24)
        mine = [row for row in found if row["id"] == f"d{at}"]
        parts = ["document"] + ["passages"] * len(own.passages) + ["sentences"] * len(own.sentences)
        assert [row["part"] for row in mine] == parts
        for row, span in zip(mine[1:], [*own.passages, *own.sentences], strict=True):
            assert (row["start"], row["end"], row["n_tokens"]) == (span.start, span.end, span.n_tokens)
            assert row["text"] == text[span.start : span.end]
            np.testing.assert_allclose(row["vector"], span.vector, atol=1e-5)


def test_a_bad_row_is_named_or_told_in_a_column(eddy_embed_class):
    batch = {"id": list("abcde"), "text": [TEXTS[0], "  ", None, TEXTS[1] * 40, TEXTS[2][:40]]}
    options = {**MODEL, "overflow": "error", "max_length": 64}
    with pytest.raises(InvalidText, match="row 'b': the text is blank"):
        eddy_embed_class(**options)(batch)
    found = eddy_embed_class(**options, errors="column")(batch)
    assert found.column("vector").is_valid().to_pylist() == [True, False, False, False, True]
    assert found.column("text").to_pylist() == batch["text"]
    for reason, said in zip(found.column("error").to_pylist()[1:4], ("blank", "NoneType", "64"), strict=True):
        assert said in reason


def test_what_is_wrong_is_said(eddy_embed_class):
    for given, error, said in (
        ({"errors": "drop"}, InvalidParameter, "raise, column"),
        ({"text_column": "body"}, InvalidParameter, "no column 'body'"),
        ({"text_column": "shelf"}, InvalidText, "not a string: 0"),
    ):
        with pytest.raises(error, match=said):
            eddy_embed_class(**{**MODEL, **given})(as_batch(TEXTS[:1], "pyarrow"))
    with pytest.raises(InvalidParameter, match="columns index, which the result needs"):
        eddy_embed_class(**MODEL)({"index": [1], "text": ["A text."]})


# --- Into an index, without embedders of the cluster


def centred() -> Embedder:
    embedder = Embedder("eddy-tiny", method="plain:exit=1+centre")
    embedder.fit(TEXTS)
    return embedder


def test_an_index_takes_vectors_that_were_made_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(chroma_index, "GROUP_DOCUMENTS", 2)
    changed, embedder, held = [*documents(3), documents(4, version=2)[3]], centred(), []

    def elsewhere(some: list[Document]) -> list[Any]:
        return embedder.encode_long([each.text for each in some], **index.encoding)

    for encode in (None, elsewhere):
        with open_index(tmp_path / str(encode is None), "notes", embedder, passage_size=24) as index:
            reports = [index.upsert(some, encode=encode) for some in (documents(4), changed)]
            assert index.check() == {} and reports[1].written == 1
            held.append((reports, rows(index)))
    assert held[0][0] == held[1][0]
    assert_same(held[0][1], held[1][1])


# --- On a cluster


@pytest.mark.slow
@pytest.mark.parametrize("method", ["plain:exit=1+truncate:dims=32", "plain:exit=1+centre"])
def test_an_index_gets_the_rows_of_one_process_and_only_what_is_new_is_embedded(method, cluster, tmp_path):
    from ray_eddy import ingest

    embedder = centred() if method.endswith("centre") else Embedder("eddy-tiny", method=method)
    third = replace(documents(4)[3], metadata={"number": 3, "shelf": "c", "new": False})
    wanted = [documents(1, version=2)[0], *documents(3)[1:], third, *documents(9)[4:]]
    bad = [Document("blank", " "), Document("named", "Text.", {"eddy_own": 1}), documents(2)[1]]
    for place, later in (("one", wanted), ("ray", [])):
        with open_index(tmp_path / place, "notes", embedder, passage_size=24) as index:
            index.upsert(documents(6))
            index.upsert(later)
    told, given = list[int](), {"model_name": "eddy-tiny", "method": method, "batch_size": 4}
    report = ingest(
        dataset([*wanted, *bad]), tmp_path / "ray", "notes", **given, progress=lambda _, done: told.append(done)
    )
    assert (report.written, report.relabelled, report.unchanged, told[-1]) == (4, 1, 4, 4)
    refused = dict(report.refused)
    assert refused.keys() == {"blank", "named", "papers/1"}
    assert "no text" in refused["blank"] and "eddy_" in refused["named"] and "same id" in refused["papers/1"]
    with open_index(tmp_path / "one", "notes") as alone, open_index(tmp_path / "ray", "notes") as index:
        assert_same(rows(alone), rows(index))
        assert index.check() == {} and index.incomplete() == []
    with pytest.raises(FingerprintMismatch, match=r"^Index '.*' was made with "):
        ingest(dataset(wanted), tmp_path / "ray", "notes", **{**MODEL, "method": "plain:exit=2"})


def test_only_texts_that_the_index_lacks_are_embedded():
    from ray_eddy.ingestion import _EmbedNew

    known = {each.id: each.text_digest for each in documents(4)}
    actor = _EmbedNew(known, **MODEL)
    given = [*documents(3), replace(documents(4)[3], metadata={}), documents(1, version=2)[0], documents(5)[4]]
    found = actor(pa.Table.from_pylist([{"id": each.id, "text": each.text} for each in given]))
    assert actor.embedder.counts.texts == 2
    deliveries = [pickle.loads(row) for row in found.column("delivery").to_pylist()]
    assert [each.result is None for each in deliveries] == [True] * 4 + [False] * 2


@pytest.mark.slow
def test_the_embedders_get_what_a_file_says_that_this_process_alone_has(cluster, tmp_path, monkeypatch):
    from ray_eddy import ingest

    monkeypatch.chdir(tmp_path)  # an embedder runs in another folder
    embedder, given = centred(), {"model_name": "eddy-tiny", "method": "plain:exit=1+centre"}
    embedder.post.save("library.npz")
    assert ingest(dataset(documents(6)), "ray", "notes", **given, fitted="library.npz").written == 6
    with open_index("one", "notes", embedder) as alone, open_index("ray", "notes", embedder) as index:
        alone.upsert(documents(6))
        assert_same(rows(alone), rows(index))


@pytest.mark.slow
def test_embedders_of_another_model_are_found_out(cluster):
    import ray.data

    from ray_eddy.ingestion import _deliveries, _EmbedNew

    batch = pa.table({"id": ["a"], "text": ["A text."]})
    embedded = ray.data.from_arrow(_EmbedNew({}, **MODEL)(batch))
    with pytest.raises(FingerprintMismatch, match="same weights"):
        list(_deliveries(embedded, "another", []))
