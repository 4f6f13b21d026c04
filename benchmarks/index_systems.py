"""Rows per second into Chroma, time of a question and disk, beside the stores of LlamaIndex and LangChain.

    python benchmarks/index_systems.py                      # on two free cores; close everything else
    python benchmarks/index_systems.py --passages 20000     # less of it

Each system runs in a process of its own, over the same 100,000 passages in cosine space, in batches as it takes them
by itself or as its documentation advises. No model runs: vectors are drawn at random, of the bundled model's width and
of length 1, and the time that drawing takes is not counted, so what is measured is the database and what stands around
it. Vectors without any order are the hardest that there are for an approximate search: `recall` says how many of the
ten that are nearest are among the ten found. Only Eddy's index also holds sentences and whole documents. The table is
printed.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from output import say

PASSAGES = 100_000
QUESTIONS = 200
NAMES = {
    "index": "`open_index`, with sentences and documents",
    "server": "the same, on a `chroma run` server",
    "llama-index eddy": "`EddyChromaVectorStore`",
    "langchain eddy": "`EddyChroma`",
    "llama-index": "LlamaIndex's `ChromaVectorStore`",
    "langchain": "LangChain's `Chroma`",
}
IN_DOCUMENT = 20
"""Passages in a document."""
SENTENCES = 2
"""Sentences in a passage."""
NEAREST = 10
BATCH = 2048
"""Nodes that LlamaIndex's VectorStoreIndex adds at a time."""
MODEL = "eddy-tiny"


class Drawn:
    """Passages and their vectors, the same for all systems."""

    def __init__(self, options: argparse.Namespace, width: int) -> None:
        self.count, self.width, self.seconds = options.passages, width, 0.0
        self.questions = unit(np.random.default_rng(0).normal(size=(options.questions + 20, width)))

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Time spent inside belongs to nobody."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - began

    def text(self, number: int) -> str:
        """Of a passage."""
        return " ".join(
            f"This is sentence {number * SENTENCES + at} of the collection, about as long as others are, and no longer."
            for at in range(SENTENCES)
        )

    def vectors(self, start: int, count: int, kind: int = 1) -> Any:
        """Of passages, sentences (2) or documents (3), by their first number: whole documents at a time."""
        return unit(np.random.default_rng([kind, start]).normal(size=(count, self.width))).astype(np.float32)

    def documents(self) -> Iterator[tuple[int, list[int]]]:
        """Number of each document, and of its passages."""
        for start in range(0, self.count, IN_DOCUMENT):
            yield start // IN_DOCUMENT, list(range(start, min(self.count, start + IN_DOCUMENT)))

    def passages(self) -> Iterator[tuple[int, int, str, Any]]:
        """Document, number, text and vector of each passage."""
        for document, numbers in self.documents():
            for number, vector in zip(numbers, self.vectors(numbers[0], len(numbers)), strict=True):
                yield document, number, self.text(number), vector

    def nearest(self) -> list[set[str]]:
        """Texts of the passages nearest to each question, by looking at all."""
        best: list[list[tuple[float, int]]] = [[] for _ in self.questions]
        for _, numbers in self.documents():
            cosines = self.questions @ self.vectors(numbers[0], len(numbers)).T.astype(np.float64)
            for own, row in zip(best, cosines, strict=True):
                own.extend(zip(row.tolist(), numbers, strict=True))
                if len(own) > 50 * NEAREST:
                    own.sort(reverse=True)
                    del own[NEAREST:]
        return [{self.text(number) for _, number in sorted(own, reverse=True)[:NEAREST]} for own in best]

    def asked(self, ask: Callable[[Any], Sequence[str]], recall: bool = True) -> dict[str, float]:
        """Times of questions in milliseconds, the first twenty left out, and how much was found."""
        times, found = [], []
        for question in self.questions:
            began = time.perf_counter()
            texts = ask(question)
            times.append((time.perf_counter() - began) * 1000)
            found.append(set(texts))
        told = {name: round(float(np.percentile(times[20:], at)), 3) for name, at in (("p50", 50), ("p95", 95))}
        if recall:
            shares = [len(own & true) / len(true) for own, true in zip(found, self.nearest(), strict=True)]
            told["recall"] = round(float(np.mean(shares)), 4)
        return told


def unit(vectors: Any) -> Any:
    """Vectors of length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _row(drawn: Drawn, folder: str, seconds: float, rows: int, asked: dict[str, Any]) -> dict[str, Any]:
    size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    return {"seconds": seconds, "rows": rows, "bytes": round(size / rows), "width": drawn.width, "asked": asked}


def _index(
    options: argparse.Namespace, place: Callable[[str], AbstractContextManager[str]] = nullcontext
) -> dict[str, Any]:
    from chroma_eddy import Document, open_index
    from eddy_embed import Embedder, LongDocument, Passage, Span

    embedder = Embedder(MODEL, method="plain")
    drawn = Drawn(options, embedder.dimension)

    def embedded(texts: list[str], **_: Any) -> list[LongDocument]:
        with drawn.uncounted():
            return [document(text) for text in texts]

    def document(text: str) -> LongDocument:
        first = int(text.split()[3]) // SENTENCES
        lines = [f"{line}." for line in text.removesuffix(".").split(". ")]
        count = len(lines) // SENTENCES
        ends = np.cumsum([len(line) + 1 for line in lines]) - 1
        places = [(int(end) - len(line), int(end)) for line, end in zip(lines, ends, strict=True)]
        own = zip(places, drawn.vectors(first, len(lines), 2), strict=True)
        sentences = [Span(start, end, 20, vector) for (start, end), vector in own]
        passages = [
            Passage(
                *(places[at * SENTENCES][0], places[at * SENTENCES + SENTENCES - 1][1], 40, vector),
                *(at * SENTENCES, at * SENTENCES + SENTENCES - 1),
            )
            for at, vector in enumerate(drawn.vectors(first, count))
        ]
        return LongDocument(text, drawn.vectors(first, 1, 3)[0], passages, sentences, 40 * count, 1, 0)

    def documents() -> Iterator[Document]:
        for number, numbers in drawn.documents():
            with drawn.uncounted():
                text = " ".join(map(drawn.text, numbers))
            yield Document(f"documents/{number}", text, {"source": f"documents/{number}"})

    with tempfile.TemporaryDirectory() as folder, place(folder) as where:
        index = open_index(where, "speed", embedder)
        vars(index.embedder)["encode_long"] = embedded
        began = time.perf_counter()
        index.upsert(documents())
        seconds = time.perf_counter() - began - drawn.seconds
        asked = {}
        for unit in ("passage", "sentence", "document"):
            ask = _asker(index, unit)
            asked[f"{unit}s"] = drawn.asked(ask, recall=unit == "passage")
        held = index.status()
        return _row(drawn, folder, seconds, held.passages + held.sentences + held.documents, asked)


def _server(options: argparse.Namespace) -> dict[str, Any]:
    return _index(options, _serving)


@contextmanager
def _serving(folder: str) -> Iterator[str]:
    """A server of Chroma's on a folder, with its own defaults: its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = Path(sys.executable).parent / "chroma"
    command = [program, "run", "--path", folder, "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            while server.poll() is None:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def _asker(index: Any, unit: str) -> Callable[[Any], list[str]]:
    return lambda question: [hit.text for hit in index.search(question[None], NEAREST, unit=unit)[0]]


def _eddy_llama_index(options: argparse.Namespace) -> dict[str, Any]:
    from llama_index.embeddings.eddy import EddyEmbedding
    from llama_index.vector_stores.eddy import EddyChromaVectorStore

    model = EddyEmbedding(MODEL, method="plain")
    with tempfile.TemporaryDirectory() as folder:
        store = EddyChromaVectorStore("speed", model, persist_dir=folder)
        return _nodes(Drawn(options, model.embedder.dimension), folder, store, model.fingerprint)


def _llama_index(options: argparse.Namespace) -> dict[str, Any]:
    from llama_index.vector_stores.chroma import ChromaVectorStore

    from llama_index.embeddings.eddy import EddyEmbedding

    model = EddyEmbedding(MODEL, method="plain")
    with tempfile.TemporaryDirectory() as folder:
        store = ChromaVectorStore(chroma_collection=_collection(folder))
        return _nodes(Drawn(options, model.embedder.dimension), folder, store, model.fingerprint)


def _nodes(drawn: Drawn, folder: str, store: Any, fingerprint: str) -> dict[str, Any]:
    from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
    from llama_index.core.vector_stores.types import VectorStoreQuery

    from llama_index.embeddings.eddy.vector_metadata import FINGERPRINT, FingerprintedVector

    nodes: list[TextNode] = []
    began = time.perf_counter()
    for document, number, text, vector in drawn.passages():
        with drawn.uncounted():
            source = RelatedNodeInfo(node_id=f"documents/{document}")
            node = TextNode(
                id_=f"passages/{number}",
                text=text,
                metadata={"source": f"documents/{document}", FINGERPRINT: fingerprint},
                relationships={NodeRelationship.SOURCE: source},
                embedding=vector.tolist(),
            )
            nodes.append(node)
        if len(nodes) == BATCH:
            store.add(nodes)
            nodes = []
    if nodes:
        store.add(nodes)
    seconds = time.perf_counter() - began - drawn.seconds

    def ask(question: Any) -> list[str]:
        query = VectorStoreQuery(
            query_embedding=FingerprintedVector(question.tolist(), fingerprint), similarity_top_k=NEAREST
        )
        return [node.text for node in store.query(query).nodes]

    return _row(drawn, folder, seconds, drawn.count, {"passages": drawn.asked(ask)})


def _eddy_langchain(options: argparse.Namespace) -> dict[str, Any]:
    from langchain_eddy import EddyChroma, EddyEmbeddings

    embeddings = EddyEmbeddings(model_name=MODEL, method="plain")
    drawn = Drawn(options, embeddings.embedder.dimension)
    with tempfile.TemporaryDirectory() as folder:
        store = EddyChroma("speed", embeddings, persist_directory=folder)
        vars(store.index.embedder)["encode_document"] = lambda texts, **_: _vectors(drawn, texts)
        return _chain(drawn, folder, store)


def _langchain(options: argparse.Namespace) -> dict[str, Any]:
    from langchain_chroma import Chroma
    from langchain_core.embeddings import Embeddings

    from eddy_embed import Embedder

    drawn = Drawn(options, Embedder(MODEL, method="plain").dimension)

    class Fixed(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            with drawn.uncounted():
                return list(_vectors(drawn, texts).tolist())

        def embed_query(self, text: str) -> list[float]:
            raise AssertionError("questions are drawn")

    with tempfile.TemporaryDirectory() as folder:
        store = Chroma(
            "speed", Fixed(), persist_directory=folder, collection_configuration={"hnsw": {"space": "cosine"}}
        )
        return _chain(drawn, folder, store)


def _chain(drawn: Drawn, folder: str, store: Any) -> dict[str, Any]:
    import chromadb
    from langchain_core.documents import Document

    # As LangChain's own `from_documents` does: as many as the database takes, a whole number of documents.
    with tempfile.TemporaryDirectory() as other:
        most = chromadb.PersistentClient(other).get_max_batch_size() // IN_DOCUMENT * IN_DOCUMENT
    began = time.perf_counter()
    for start in range(0, drawn.count, most):
        with drawn.uncounted():
            numbers = range(start, min(drawn.count, start + most))
            documents = [
                Document(drawn.text(number), metadata={"source": f"documents/{number // IN_DOCUMENT}"})
                for number in numbers
            ]
            ids = [f"passages/{number}" for number in numbers]
        store.add_documents(documents, ids=ids)
    seconds = time.perf_counter() - began - drawn.seconds

    def ask(question: Any) -> list[str]:
        found = store.similarity_search_by_vector(question.tolist(), NEAREST)
        return [document.page_content for document in found]

    return _row(drawn, folder, seconds, drawn.count, {"passages": drawn.asked(ask)})


def _vectors(drawn: Drawn, texts: list[str]) -> Any:
    with drawn.uncounted():
        numbers = [int(text.split()[3]) // SENTENCES for text in texts]
        starts = range(numbers[0], numbers[-1] + 1, IN_DOCUMENT)
        return np.concatenate([drawn.vectors(at, min(IN_DOCUMENT, drawn.count - at)) for at in starts])


def _collection(folder: str) -> Any:
    import chromadb

    client = chromadb.PersistentClient(folder, chromadb.Settings(anonymized_telemetry=False))
    return client.create_collection("speed", embedding_function=None, configuration={"hnsw": {"space": "cosine"}})


RUNS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "index": _index,
    "server": _server,
    "llama-index eddy": _eddy_llama_index,
    "langchain eddy": _eddy_langchain,
    "llama-index": _llama_index,
    "langchain": _langchain,
}


def main() -> None:
    """Measure each system in a process of its own, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=PASSAGES)
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    parser.add_argument("--system", action="append", choices=list(NAMES), help="may be repeated; default: all")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        sys.stdout.write(f"{json.dumps(RUNS[options.run](options))}\n")
        return
    rows: dict[str, Any] = {}
    for system in options.system or NAMES:
        more = ["--passages", str(options.passages), "--questions", str(options.questions)]
        child = subprocess.run([sys.executable, __file__, *more, "--run", system], capture_output=True, text=True)
        if child.returncode:
            raise SystemExit(f"{system}: {child.stderr}")
        rows[system] = json.loads(child.stdout.splitlines()[-1])
        say(f"{system}: {rows[system]}")
    sys.stdout.write(f"{table(rows, {'passages': options.passages, 'questions': options.questions})}\n")


def table(rows: dict[str, Any], sizes: dict[str, int]) -> str:
    """A row for each system and kind of question, with ratios to LlamaIndex's own store."""
    base = rows.get("llama-index")
    lines = [
        "| written by | rows/s | passages/s | bytes per row | query for | p50 ms | p95 ms | recall@10 |",
        "|---|---:|---:|---:|---|---:|---:|---:|",
    ]
    for system, name in NAMES.items():
        if system not in rows:
            continue
        row = rows[system]
        passages = sizes["passages"] / row["seconds"]
        told = f" ({passages * base['seconds'] / sizes['passages']:.2f} ×)" if base else ""
        first = f"| {name} | {row['rows'] / row['seconds']:,.0f} | {passages:,.0f}{told} | {row['bytes']:,.0f} "
        for kind, times in row["asked"].items():
            ratio = f" ({times['p50'] / base['asked']['passages']['p50']:.2f} ×)" if base else ""
            recall = f"{times['recall']:.2f}" if "recall" in times else ""
            lines.append(f"{first}| {kind} | {times['p50']:.1f}{ratio} | {times['p95']:.1f} | {recall} |")
            first = "| | | | "
    width = next(iter(rows.values()))["width"] if rows else 0
    return "\n".join(lines) + (
        f"\n\n{about()}. {sizes['passages']:,} passages of {SENTENCES} sentences, {IN_DOCUMENT} per document; "
        f"random unit vectors of {width} dimensions; {sizes['questions']} queries for the nearest {NEAREST}. In "
        "brackets: the ratio to LlamaIndex's own store; above 1 is faster for passages/s and slower for p50."
    )


def about() -> str:
    """What a reader needs to know of the machine and the packages."""
    names = ("chromadb", "llama-index-vector-stores-chroma", "langchain-chroma")
    return ", ".join([f"{os.cpu_count()} cores", *(f"{name} {version(name)}" for name in names)])


if __name__ == "__main__":
    main()
