"""Ray: the vectors of one machine from actors, in Arrow's lists of fixed size, in order; what is bad is named."""

from __future__ import annotations

import gzip
import json
import signal
import socket
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray.data
import ray.exceptions
import typer
from tests.adapters.indexes import assert_same, documents, rows
from tests.adapters.ray_clusters import one_node
from tests.selection import mostly_slow

from chroma_eddy import Document, open_index
from chroma_eddy.errors import Unreachable
from chroma_eddy.storage import names
from chroma_eddy.write import writer
from eddy_embed import Embedder
from eddy_embed.errors import FingerprintMismatch, InvalidParameter, InvalidText, NotFitted
from ray_eddy import EddyEmbed, command, ingestion, read_documents, reading, retry
from ray_eddy.actors import EmbedDocuments, FilterUnchanged
from ray_eddy.arrow_tables import to_matrix
from ray_eddy.cluster import _keep_sigterm_handler, actor_pool, unwrapped_error
from ray_eddy.ingestion import _Counters, _deliveries
from ray_eddy.row_codec import to_tables
from ray_eddy.writer import IndexWriter

MODEL = {"model_name": "eddy-tiny", "method": "plain:exit=1"}
TEXTS = [document.text for document in documents(8)]


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder("eddy-tiny", method="plain:exit=1")


@pytest.fixture(scope="module")
def cluster():
    with one_node():
        yield


def as_batch(texts: list, kind: str):
    table = pa.table({"id": [f"d{at}" for at in range(len(texts))], "text": texts, "shelf": list(range(len(texts)))})
    if kind == "numpy":
        return {name: np.array(table.column(name).to_pylist(), object) for name in table.column_names}
    return table.to_pandas() if kind == "pandas" else table


# --- One actor, without Ray


@pytest.mark.parametrize("kind", ["pyarrow", "numpy", "pandas"])
def test_an_actor_gives_the_vectors_of_the_library(kind, embedder):
    found = EddyEmbed(**MODEL)(as_batch(TEXTS, kind))
    assert found.schema.field("vector").type == pa.list_(pa.float32(), embedder.dimension)
    assert found.column("id").to_pylist() == [f"d{at}" for at in range(8)] and "shelf" in found.column_names
    np.testing.assert_allclose(to_matrix(found.column("vector")), embedder.encode_document(TEXTS), atol=1e-5)


def test_parts_of_a_document_are_rows_with_offsets(embedder):
    parts = ("document", "passages", "sentences")
    found = EddyEmbed(**MODEL, parts=parts, passage_size=24)(as_batch(TEXTS, "pyarrow")).to_pylist()
    whole = [each.id for each in documents(8)]
    for at, text in enumerate(TEXTS):
        own = embedder.encode_long(text, passage_size=24)
        mine = [row for row in found if row["id"] == f"d{at}"]
        assert [row["part"] for row in mine] == [
            *("document",),
            *("passages",) * len(own.passages),
            *("sentences",) * len(own.sentences),
        ]
        for row, span in zip(mine[1:], [*own.passages, *own.sentences], strict=True):
            assert (row["start"], row["end"], row["n_tokens"]) == (span.start, span.end, span.n_tokens)
            assert row["text"] == text[span.start : span.end]
            np.testing.assert_allclose(row["vector"], span.vector, atol=1e-5)
    assert len(whole) == 8


def test_a_bad_row_is_named_or_told_in_a_column():
    texts = [TEXTS[0], "  ", None, TEXTS[1]]
    batch = {"id": list("abcd"), "text": texts}
    with pytest.raises(InvalidText, match="row 'b': the text is blank"):
        EddyEmbed(**MODEL)(batch)
    found = EddyEmbed(**MODEL, errors="column")(batch)
    assert found.column("vector").is_valid().to_pylist() == [True, False, False, True]
    reasons = found.column("error").to_pylist()
    assert reasons[0] is None and "blank" in reasons[1] and "NoneType" in reasons[2]
    assert found.column("text").to_pylist() == texts


def test_a_text_that_is_too_long_leaves_the_others(embedder):
    actor = EddyEmbed(**MODEL, errors="column", overflow="error", max_length=64)
    texts = [TEXTS[0][:40], TEXTS[1] * 40, TEXTS[2][:40]]
    found = actor(as_batch(texts, "pyarrow"))
    assert found.column("vector").is_valid().to_pylist() == [True, False, True]
    assert "64" in found.column("error")[1].as_py()


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"methd": "htp"}, InvalidParameter, "did you mean method"),
        ({"parts": "passages"}, InvalidParameter, "parts="),
        ({"errors": "drop"}, InvalidParameter, "raise, column"),
        ({"method": "plain:exit=1+whiten"}, NotFitted, "fitted="),
        ({"text_column": "body"}, InvalidParameter, "no column 'body'"),
    ],
)
def test_what_is_wrong_is_said(given, error, said):
    with pytest.raises(error, match=said):
        EddyEmbed(**{**MODEL, **given})(as_batch(TEXTS[:1], "pyarrow"))


# --- Into an index, without Ray


def delivered(index, given, batch=3, model=MODEL, **more):
    """What `ingest` does, in one process."""
    writer = IndexWriter(index, **more)
    info, settings = writer.index_info(), {name: value for name, value in model.items() if name != "model_name"}
    filter_unchanged = FilterUnchanged(None, index.name, index.entries(), 0.0)
    embed = EmbedDocuments(model["model_name"], settings, info.sizes, info.parts, info.fingerprint)
    counters = _Counters(None)
    for table in _deliveries(counters, (embed(filter_unchanged(t)) for t in to_tables(given, batch)), info.unfitted):
        counters.count_write(writer.write(table))
    return counters.report


def by_place(found: dict) -> dict:
    """Rows by document and place in place of their ids, without what names the fingerprint."""
    by: dict = {}
    for part, own in found.items():
        by[part] = {}
        for id_, (vector, metadata, text) in own.items():
            told = {name: value for name, value in metadata.items() if name not in ("eddy_fingerprint", "eddy_passage")}
            place = [told.get(name) for name in ("eddy_document", "eddy_digest", "start_index", "end_index")]
            if part == names.RAW:  # no place is told there
                if not id_.startswith("document/"):
                    continue
                place = [id_]
            by[part][(*place, text, id_ if part == names.TRANSFORM else "")] = (vector, told, text)
        assert part == names.RAW or len(by[part]) == len(own), part
    return by


@pytest.mark.parametrize(
    "method", mostly_slow(["plain:exit=1", "plain:exit=1+centre", "plain:exit=1+abtt:k=1"], ["plain:exit=1+centre"])
)
def test_deliveries_are_the_rows_of_upsert(method, tmp_path, monkeypatch):
    for module in (writer, ingestion):
        monkeypatch.setattr(module, "FIT_PASSAGES", 9)
        monkeypatch.setattr(module, "GROUP_DOCUMENTS", 2)
    first, second = documents(12), [*documents(12, version=2)[:2], *documents(12)[2:]]
    second[3] = replace(second[3], metadata={"shelf": "c"})
    model = {**MODEL, "method": method}
    held = []
    for place, write in (("one", lambda index, given: index.upsert(given)), ("ray", None)):
        with open_index(tmp_path / place, "notes", Embedder("eddy-tiny", method=method), passage_size=24) as index:
            for given in (first, second):
                report = write(index, given) if write else delivered(index, given, model=model)
                held.append((replace(report), rows(index)))
            assert index.check() == {} and index.incomplete() == {}
    # What post-processing learns changes in its last digits with the company of the texts, and with it the ids.
    key = (lambda found: found) if "+" not in method else by_place
    for (one, alone), (two, together) in zip(held[:2], held[2:], strict=True):
        assert_same(key(alone), key(together), atol=1e-5 if "+" not in method else 1e-4)
        for name in ("written", "unchanged", "relabelled", "passages", "sentences", "tokens", "fitted_on"):
            assert getattr(one, name) == getattr(two, name), name
    assert (held[3][0].written, held[3][0].unchanged, held[3][0].relabelled) == (2, 9, 1)


def test_what_cannot_be_stored_is_told_and_the_rest_is_written(tmp_path, embedder):
    bad = [Document("blank", " "), Document("name", "Text.", {"eddy_own": 1}), documents(2)[0]]
    with open_index(tmp_path, "notes", embedder) as index:
        report = delivered(index, [*documents(4), *bad])
        assert (report.written, report.done, len(index.entries())) == (4, 7, 4)
    said = dict(report.refused)
    assert said.keys() == {"blank", "name", "papers/0"}
    assert "no text" in said["blank"] and "eddy_" in said["name"] and "two documents" in said["papers/0"]


def test_columns_of_a_dataset_are_metadata_and_none_is_taken_from_it(tmp_path, embedder):
    table = pa.table({"id": [7], "text": ["A text."], "file": ["a.txt"], "row": [3], "state": ["new"], "gone": [None]})
    found = FilterUnchanged(None, "notes", {}, 0.0)(table).to_pylist()[0]
    assert json.loads(found["metadata"]) == {"file": "a.txt", "row": 3, "state": "new"} and found["id"] == "7"
    with pytest.raises(InvalidParameter, match="columns index, which the result needs"):
        EddyEmbed(**MODEL)({"index": [1], "text": ["A text."]})
    for bad, error in (
        (Document("a", "Half \ud800."), InvalidText),
        (Document("a", "b", {"c": {1}}), InvalidParameter),
    ):
        with pytest.raises(error):
            to_tables([bad], 2)


def test_another_model_on_a_machine_is_refused(tmp_path, embedder):
    with open_index(tmp_path, "notes", embedder) as index:
        with pytest.raises(FingerprintMismatch, match="different weights"):
            delivered(index, documents(2), model={**MODEL, "method": "plain:exit=2"})
        assert not index.exists


def test_a_server_that_is_gone_is_waited_for(monkeypatch):
    monkeypatch.setattr(retry, "PAUSE_SECONDS", 0.0)
    tries, told = [], []

    def answer() -> str:
        tries.append(1)
        if len(tries) < 4:
            raise Unreachable("gone")
        return "back"

    assert retry.retry_unreachable(answer, 60, told.append) == "back" and len(told) == 3
    with pytest.raises(Unreachable):
        retry.retry_unreachable(lambda: (_ for _ in ()).throw(Unreachable("gone")), -1)


@pytest.mark.parametrize(
    ("paths", "said"),
    [("gone", "does not exist"), ("a.bin", "is of a type that is not read"), ("", "no file to read")],
)
def test_paths_without_documents_are_refused(paths, said, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"\0")
    with pytest.raises(InvalidParameter, match=said):
        read_documents(tmp_path / paths)


def test_an_address_without_a_cluster_and_a_folder_that_is_used_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("Text.")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(InvalidParameter, match=f"no Ray cluster at '{address}'"):
        command.embed([str(tmp_path)], address, str(tmp_path / "out.parquet"))
    with pytest.raises(InvalidParameter, match="is there already"):
        command.embed([str(tmp_path)], address, str(tmp_path))


def test_an_error_of_an_actor_is_found_in_its_traceback():
    text = "ray::Map()\n  File ...\neddy_embed.errors.InvalidText: row 'y': blank;\ndrop it\n\nThe above exception was"
    found = unwrapped_error(ray.exceptions.RayError(f"{text} more\nTo change retry attempts, ..."))
    assert isinstance(found, InvalidText) and str(found) == "row 'y': blank;\ndrop it"
    assert unwrapped_error(ValueError("another")) is None


@pytest.fixture
def files(tmp_path):
    """Files of every kind, some of them broken; what becomes of them."""
    (tmp_path / "b").mkdir()
    (tmp_path / "a.txt").write_text(TEXTS[0], encoding="utf-8")
    (tmp_path / "b" / "c.md").write_text(TEXTS[1], encoding="utf-8")
    given = [{"id": f"row {at}", "text": text, "year": 1900 + at} for at, text in enumerate(TEXTS[2:5])]
    lines = [json.dumps(row) for row in given]
    (tmp_path / "b" / "d.jsonl").write_text("\n".join([lines[0], "", "{not json", lines[1], '{"title": "no text"}']))
    pq.write_table(pa.Table.from_pylist(given), tmp_path / "e.parquet", row_group_size=2)
    (tmp_path / "f.bin").write_bytes(b"\0")
    (tmp_path / "g.txt").write_bytes(b"caf\xe9")
    with gzip.open(tmp_path / "h.jsonl.gz", "wt") as file:
        file.write(f"{lines[2]}\n")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "i.txt").write_text("Not this.")
    broken = {"b/d.jsonl#2", "b/d.jsonl#4", "g.txt"}
    ids = [
        "a.txt",
        "b/c.md",
        "row 0",
        "b/d.jsonl#2",
        "row 1",
        "b/d.jsonl#4",
        "row 0",
        "row 1",
        "row 2",
        "g.txt",
        "row 2",
    ]
    texts = iter([TEXTS[0], TEXTS[1], TEXTS[2], TEXTS[3], *TEXTS[2:5], TEXTS[4]])
    return [(id_, None if id_ in broken else next(texts)) for id_ in ids]


def test_files_and_rows_are_documents_with_a_key(files, tmp_path):
    tasks = reading.read_tasks([tmp_path])
    assert len(tasks) == 7, "a group of Parquet rows is a task"
    found = [row for task in tasks for t in reading.run_task(pa.Table.from_pylist([task])) for row in t.to_pylist()]
    assert [(row["id"], row["text"]) for row in found] == files
    assert [(row["file"], row["row"]) for row in found] == sorted((row["file"], row["row"]) for row in found)
    assert [row["row"] for row in found if row["file"] == 3] == [0, 1, 2]
    assert json.loads(found[-1]["metadata"]) == {"year": 1902}
    reasons = {row["id"]: row["error"] for row in found if row["error"]}
    assert "not a row of JSON" in reasons["b/d.jsonl#2"] and "no text in the field 'text'" in reasons["b/d.jsonl#4"]
    assert "byte 3 is not UTF-8" in reasons["g.txt"] and len(reasons) == 3
    assert "not a row of JSON" in reading._parsed(b"[" * 200_000)


# --- On a cluster


@pytest.mark.slow
def test_actors_of_a_cluster_give_the_vectors_of_the_library(cluster, embedder):
    found = ray.data.from_arrow(to_tables(documents(8), 2)).map_batches(
        EddyEmbed, fn_constructor_kwargs=MODEL, compute=actor_pool(1), batch_format="pyarrow", batch_size=4
    )
    vectors = {row["id"]: row["vector"] for row in found.take_all()}
    assert vectors.keys() == {each.id for each in documents(8)}
    np.testing.assert_allclose([vectors[each.id] for each in documents(8)], embedder.encode_document(TEXTS), atol=1e-5)


@pytest.mark.slow
def test_files_become_vectors_in_their_order(cluster, files, tmp_path, embedder, capsys):
    told = {"part": ["passages"], "passage_size": 24, "errors": "column", "batch_size": 2, "method": MODEL["method"]}
    with pytest.raises(typer.Exit, match="1"):
        command.embed([str(tmp_path)], "auto", str(tmp_path / "out.parquet"), **told)
    assert "without a vector: 3" in capsys.readouterr().err
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.schema.field("vector").type == pa.list_(pa.float32(), embedder.dimension)
    names, expected = [], []
    for id_, text in files:
        vectors = [None] if text is None else [p.vector for p in embedder.encode_long(text, passage_size=24).passages]
        names += [id_] * len(vectors)
        expected += vectors
    assert table.column("id").to_pylist() == names
    for row, vector in zip(table.to_pylist(), expected, strict=True):
        assert (row["vector"] is None) == (vector is None) == (row["error"] is not None), row
        if vector is not None:
            np.testing.assert_allclose(row["vector"], vector, atol=1e-5)
    command.embed([str(tmp_path / "a.txt")], "auto", str(tmp_path / "folder"), method=MODEL["method"])
    np.testing.assert_allclose(
        to_matrix(pq.read_table(tmp_path / "folder").column("vector")), embedder.encode_document(TEXTS[:1]), atol=1e-5
    )
    # Last, for what is kept of the error keeps its embedder's processor.
    with pytest.raises(InvalidText, match=r"row .d\.jsonl#2.: not a row of JSON"):
        command.embed([str(tmp_path / "b")], "auto", str(tmp_path / "never"), method=MODEL["method"])


@pytest.mark.slow
def test_an_index_has_the_rows_of_one_process(cluster, tmp_path, embedder):
    wanted = [*documents(9)[:-1], documents(9, version=2)[8]]
    with open_index(tmp_path / "one", "notes", embedder, passage_size=24) as alone:
        alone.upsert(wanted)
        told: list[int] = []
        given = {**MODEL, "passage_size": 24, "batch_size": 2, "progress": lambda report: told.append(report.done)}
        report = ingestion.ingest([*documents(9), Document("blank", " ")], tmp_path / "ray", "notes", **given)
        assert (report.written, report.done, len(report.refused)) == (9, 10, 1)
        assert told == sorted(told) and len(told) > 3
        again = ingestion.ingest(wanted, tmp_path / "ray", "notes", **MODEL)
        assert (again.written, again.unchanged, again.embedders_restarted) == (1, 8, 0)
        with open_index(tmp_path / "ray", "notes", embedder) as index:
            assert_same(rows(alone), rows(index))
            assert index.check() == {}


@pytest.mark.slow
def test_the_demo_ingests_on_a_cluster_what_it_would_alone(cluster, tmp_path, monkeypatch):
    from eddy_demo.cli import main

    for at, text in enumerate(TEXTS):
        (tmp_path / f"{at}.txt").write_text(text, encoding="utf-8")
    held = []
    for name, more in (("alone", []), ("ray", ["--ray", "auto", "--concurrency", "1"])):
        given = ["ingest", str(tmp_path), "--library", str(tmp_path / "libraries" / name), "--method", "plain:exit=1"]
        monkeypatch.setattr("sys.argv", ["eddy-demo", *given, *more])
        with pytest.raises(SystemExit, match="0"):
            main()
        with open_index(tmp_path / "libraries" / name / "chroma", "library") as index:
            held.append(rows(index))
    assert_same(*held)


def test_sigterm_stays_whose_it_was() -> None:
    """Ray would have it end the process, past whoever tells what was left undone."""
    before = signal.getsignal(signal.SIGTERM)
    with _keep_sigterm_handler():
        signal.signal(signal.SIGTERM, lambda *_: None)
    assert signal.getsignal(signal.SIGTERM) is before
