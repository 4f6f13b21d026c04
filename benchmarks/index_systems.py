"""Writing, opening and asking a large index, beside the Chroma stores of LlamaIndex and LangChain.

    python benchmarks/index_systems.py --write              # on two free cores; close everything else
    python benchmarks/index_systems.py --passages 20000     # less of it

Each system writes the same 100,000 passages in cosine space in a process of its own, in batches as it takes them by
itself or as its documentation advises. No model runs: vectors are drawn at random before time is taken, of the model's
width and of length 1, so what is measured is the database and what stands around it. Vectors without any order are the
hardest that there are for an approximate search: recall says how many of the ten that are nearest are among the ten
found. Then fresh processes open what was written and ask once, the index by itself and all by plain chromadb; they
tell, as medians, how long that takes after all imports, and how much memory it adds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from index_cost import Found, child, disk, in_turn, processor, table
from output import RESULTS, put, say

NAMES = {
    "index": "`open_index`",
    "llama-index": "LlamaIndex's `ChromaVectorStore`",
    "langchain": "LangChain's `Chroma`",
    "llama-index eddy": "`EddyChromaVectorStore`",
}
IN_DOCUMENT, SENTENCES = 20, 2
"""Passages in a document, sentences in a passage."""
NEAREST = 10
BATCH, LARGEST = 2_048, 5_461
"""What LlamaIndex's VectorStoreIndex adds at a time, and LangChain's `from_documents`: as much as Chroma takes."""
OPENED, OPENINGS = {"index": ("itself", "chromadb"), "llama-index": ("chromadb",)}, 3
"""What opens the folders of systems, and how often."""
DROPPED = 20
"""Questions that are not counted."""
COSINE: Any = {"hnsw": {"space": "cosine"}}


class Drawn:
    """Passages and questions with their vectors, the same for all systems, and the time that writing them takes."""

    def __init__(self, options: argparse.Namespace, width: int) -> None:
        draw = np.random.default_rng(0).standard_normal
        self.questions = draw((options.questions + DROPPED, width), np.float32)
        self.vectors = draw((options.passages, width), np.float32)
        self.vectors /= np.linalg.norm(self.vectors, axis=1, keepdims=True)
        sentence = "This is sentence {} of the collection, about as long as others are, and no longer."
        pairs = range(0, options.passages * SENTENCES, SENTENCES)
        self.texts = [" ".join(sentence.format(at + own) for own in range(SENTENCES)) for at in pairs]
        self.folder = Path(options.folder)
        self.spent = np.zeros(2)

    @staticmethod
    def number(text: str) -> int:
        """Number of a passage, or of a document's first one."""
        return int(text.split()[3]) // SENTENCES

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Time spent inside is the system's: wall and processor time."""
        began = time.perf_counter(), processor()
        yield
        self.spent += np.array([time.perf_counter(), processor()]) - began

    def batches(self, most: int) -> Iterator[range]:
        """Numbers of passages to write at a time."""
        for start in range(0, len(self.texts), most):
            yield range(start, min(len(self.texts), start + most))

    def found(self, **asks: Callable[[Any], Sequence[str]]) -> Found:
        """What writing has cost, and what asking costs, by what is asked for."""
        (seconds, used), (count, width) = self.spent.tolist(), self.vectors.shape
        told = {"dimensions": width, "passages written per s": count / seconds, "writing, processor s": used}
        told["disk, GB per 10^6 passages"] = disk(self.folder).total() / count / 1e3
        for kind, ask in asks.items():
            times, texts = [], []
            for question in self.questions:
                began = time.perf_counter()
                texts.append(ask(question))
                times.append((time.perf_counter() - began) * 1000)
            told |= {f"{kind}, p{at}, ms": float(np.percentile(times[DROPPED:], at)) for at in (50, 95)}
            if kind == "passages":
                best = np.argpartition(self.questions @ self.vectors.T, -NEAREST)[:, -NEAREST:].tolist()
                hits = [len({self.texts[at] for at in own} & {*got}) for own, got in zip(best, texts, strict=True)]
                told["recall@10"] = float(np.mean(hits)) / NEAREST
        return told


def _index(options: argparse.Namespace) -> Found:
    from chroma_eddy import Document, open_index
    from eddy_embed import Embedder, LongDocument, Passage, Span

    embedder = Embedder(options.model, method=options.method)
    drawn = Drawn(options, embedder.dimension)

    def embedded(texts: Sequence[str], parts: Sequence[str], **_: Any) -> list[LongDocument]:
        return [document(text, "sentences" in parts) for text in texts]

    def document(text: str, split: bool) -> LongDocument:
        first = drawn.number(text)
        passages, sentences, start = list[Passage](), list[Span](), 0
        for at, own in enumerate(drawn.texts[first : first + IN_DOCUMENT]):
            vector, middle, end = drawn.vectors[first + at], own.index(". ") + 1, start + len(own)
            passages.append(Passage(start, end, 40, vector, at * SENTENCES, at * SENTENCES + SENTENCES - 1))
            if split:
                sentences += [Span(start, start + middle, 20, vector), Span(start + middle + 1, end, 20, vector)]
            start = end + 1
        return LongDocument(text, passages[0].vector, passages, sentences, 40 * len(passages), 1, 0)

    def asker(index: Any, unit: str) -> Callable[[Any], list[str]]:
        return lambda question: [hit.text for hit in index.search(question[None], NEAREST, unit=unit)[0]]

    documents = [
        Document(f"documents/{at}", " ".join(drawn.texts[numbers.start : numbers.stop]), {"source": f"documents/{at}"})
        for at, numbers in enumerate(drawn.batches(IN_DOCUMENT))
    ]
    with drawn.counted(), open_index(options.folder, "speed", embedder) as index:
        vars(index.embedder)["encode_long"] = embedded
        index.upsert(documents)
    with open_index(options.folder, "speed", embedder) as index:
        return drawn.found(**{f"{unit}s": asker(index, unit) for unit in ("passage", "sentence", "document")})


def _eddy_llama_index(options: argparse.Namespace) -> Found:
    from llama_index.vector_stores.eddy import EddyChromaVectorStore

    return _nodes(options, lambda model: EddyChromaVectorStore("speed", model, persist_dir=options.folder))


def _llama_index(options: argparse.Namespace) -> Found:
    from llama_index.vector_stores.chroma import ChromaVectorStore

    collection = _client(options.folder).create_collection("speed", embedding_function=None, configuration=COSINE)
    return _nodes(options, lambda _: ChromaVectorStore(chroma_collection=collection))


def _nodes(options: argparse.Namespace, open_store: Callable[[Any], Any]) -> Found:
    from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
    from llama_index.core.vector_stores.types import VectorStoreQuery

    from llama_index.embeddings.eddy import EddyEmbedding
    from llama_index.embeddings.eddy.base import FINGERPRINT, FingerprintedVector

    model = EddyEmbedding(options.model, method=options.method)
    drawn, store, made_by = Drawn(options, model.embedder.dimension), open_store(model), model.fingerprint

    def node(number: int) -> TextNode:
        source = f"documents/{number // IN_DOCUMENT}"
        return TextNode(
            id_=f"passages/{number}",
            text=drawn.texts[number],
            metadata={"source": source, FINGERPRINT: made_by},
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=source)},
            embedding=drawn.vectors[number].tolist(),
        )

    def ask(question: Any) -> list[str]:
        vector = FingerprintedVector(question.tolist(), made_by)
        return [got.text for got in store.query(VectorStoreQuery(vector, similarity_top_k=NEAREST)).nodes]

    for numbers in drawn.batches(BATCH):
        nodes = [node(number) for number in numbers]
        with drawn.counted():
            store.add(nodes)
    return drawn.found(passages=ask)


def _langchain(options: argparse.Namespace) -> Found:
    from langchain_chroma import Chroma
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings

    from eddy_embed import Embedder

    drawn = Drawn(options, Embedder(options.model, method=options.method).dimension)

    class Fixed(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return list(drawn.vectors[[drawn.number(text) for text in texts]].tolist())

        def embed_query(self, text: str) -> list[float]:
            raise AssertionError("questions are drawn")

    def ask(question: Any) -> list[str]:
        return [got.page_content for got in store.similarity_search_by_vector(question.tolist(), NEAREST)]

    store = Chroma("speed", Fixed(), persist_directory=options.folder, collection_configuration=COSINE)
    for numbers in drawn.batches(LARGEST):
        sources = [{"source": f"documents/{number // IN_DOCUMENT}"} for number in numbers]
        documents = [Document(drawn.texts[at], metadata=own) for at, own in zip(numbers, sources, strict=True)]
        with drawn.counted():
            store.add_documents(documents, ids=[f"passages/{number}" for number in numbers])
    return drawn.found(passages=ask)


def _client(folder: str) -> Any:
    import chromadb

    return chromadb.PersistentClient(folder, chromadb.Settings(anonymized_telemetry=False))


def _opened(options: argparse.Namespace, by: str) -> Found:
    """Seconds until a first question is answered, and what that adds to the memory of this process."""
    from chroma_eddy import open_index
    from eddy_embed import Embedder

    embedder = Embedder(options.model, method=options.method)
    question = np.random.default_rng(0).standard_normal((1, embedder.dimension), np.float32)
    memory, began = _resident(), time.perf_counter()
    if by == "chromadb":
        collection = _client(options.folder).get_collection("speed", embedding_function=None)
        collection.query(query_embeddings=question, n_results=NEAREST)
    else:
        open_index(options.folder, "speed", embedder).search(question, NEAREST)
    seconds = time.perf_counter() - began
    return {f"first answer by {by}, s": seconds, f"memory by {by}, MB": _resident() - memory}


def _resident() -> float:
    """Megabytes of this process in memory (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


RUNS: dict[str, Callable[[argparse.Namespace], Found]] = {
    "index": _index,
    "llama-index": _llama_index,
    "langchain": _langchain,
    "llama-index eddy": _eddy_llama_index,
    "itself": lambda options: _opened(options, "itself"),
    "chromadb": lambda options: _opened(options, "chromadb"),
}


def main() -> None:
    """Measure each system in a process of its own, print the table, and write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--model", default="smollm2", help="its width is that of the vectors (576)")
    parser.add_argument("--method", default="plain:exit=0")
    parser.add_argument("--system", action="append", choices=list(NAMES), help="may be repeated; default: all")
    parser.add_argument("--write", action="store_true", help="put the table into results/index-speed.md")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        sys.stdout.write(f"{json.dumps(RUNS[options.run](options))}\n")
        return
    found: dict[str, Found] = {}
    for system in options.system or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            run = partial(child, __file__, *sys.argv[1:], "--folder", folder, "--run")
            row = run(system)
            for told in in_turn([partial(run, by) for by in OPENED.get(system, ())], OPENINGS):
                row |= told
        found[NAMES[system]] = row
        say(f"{system}: {row}")
    packages = ("chromadb", "llama-index-vector-stores-chroma", "langchain-chroma")
    about = ", ".join([f"{os.cpu_count()} cores", *(f"{name} {version(name)}" for name in packages)])
    text = (
        f"{table(found)}\n\n{about}. {options.passages:,} passages of {SENTENCES} sentences, {IN_DOCUMENT} per "
        f"document; {options.questions} queries for the nearest {NEAREST}."
    )
    sys.stdout.write(f"{text}\n")
    if options.write:
        put(RESULTS / "index-speed.md", "index-systems", text)


if __name__ == "__main__":
    main()
