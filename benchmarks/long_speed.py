"""Words per second from text to rows in Chroma, part by part, beside the usual way in LlamaIndex and LangChain.

    python benchmarks/long_speed.py

Each system runs in a process of its own, with the same model, mean pooling, type of number, threads and passage size,
over the same documents, after a short one for warming up. Eddy reads each document once (`late`) or each passage by
itself (`chunk`); the others split with their own splitter for sentences and embed the chunks, sorted and batched as
their documentation advises. Written are times of each part and the size of the index for each 1,000 words, at each
granularity, to `benchmarks/results/MODEL-long-speed.json`; a table is printed. `--words 2000`
tries it, and writes only what `--json` names.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from output import RESULTS, say
from texts import story

import eddy_embed

WORDS = 50_000
DOCUMENT = 5_000
"""Words in a document: several windows of the bundled model."""
SIZE = 256
SYSTEMS = ("eddy late", "eddy chunk", "llama-index", "langchain")
PARTS = ("document", "passages", "sentences")
BATCH = 32
"""The usual default of the library that the others embed with; on a processor larger ones only pad more."""


class Clock:
    """Seconds spent in named parts; a part inside another counts for itself alone."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._open: list[str] = []
        self._since = 0.0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what happens inside."""
        self._turn()
        self._open.append(name)
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def _turn(self) -> None:
        now = time.perf_counter()
        if self._open:
            self.spent[self._open[-1]] = self.spent.get(self._open[-1], 0.0) + now - self._since
        self._since = now

    def watch(self, owner: Any, name: str, part: str) -> None:
        """Count every call of a method."""
        usual = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            with self.part(part):
                return usual(*args, **kwargs)

        setattr(owner, name, counted)


def main() -> None:
    """Measure each system in a process of its own, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="eddy-tiny")
    parser.add_argument("--method", default="plain:exit=-1", help="of Eddy; the others read the last layer")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--words", type=int, default=WORDS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--system", action="append", choices=SYSTEMS, help="may be repeated; default: all")
    parser.add_argument("--json", type=Path, help="default: benchmarks/results/MODEL-long-speed.json")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        sys.stdout.write(f"{json.dumps(RUNS[options.run](options))}\n")
        return
    command = " ".join(["python", "benchmarks/long_speed.py", *sys.argv[1:]])
    say(command)
    rows = []
    for system in options.system or SYSTEMS:
        child = subprocess.run(
            [sys.executable, __file__, *sys.argv[1:], "--run", system], capture_output=True, text=True
        )
        if child.returncode:
            raise SystemExit(f"{system}: {child.stderr}")
        row = {"system": system, **json.loads(child.stdout.splitlines()[-1])}
        rows.append(row)
        parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in row["seconds"].items())
        say(f"{system:<12} {row['words'] / row['total']:>8.0f} words/s  {parts}; {row['kilobytes']} kB per 1,000 words")
    whole = options.words == WORDS and not options.system
    target = options.json or (RESULTS / f"{Path(options.model).name}-long-speed.json" if whole else None)
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        about = {"model": options.model, "command": command, "passage_size": SIZE, "batch": BATCH, "rows": rows}
        target.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        say(f"written: {target}")
    say(table(rows))


def table(rows: list[dict[str, Any]]) -> str:
    """Words per second, the seconds of each part for 1,000 words, and kilobytes of the index for 1,000 words."""
    parts = list(dict.fromkeys(part for row in rows for part in row["seconds"]))
    lines = [
        f"| system | words/s | {' | '.join(parts)} | kB: passages | documents | sentences |",
        f"|---|{'---|' * (len(parts) + 4)}",
    ]
    for row in rows:
        each = [f"{1000 * row['seconds'].get(part, 0.0) / row['words']:.3f}" for part in parts]
        sizes = [str(row["kilobytes"].get(name, "")) for name in ("passages", "document", "sentences")]
        cells = [row["system"], f"{row['words'] / row['total']:,.0f}", *each, *sizes]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _folder(model: str) -> str:
    bundled = Path(eddy_embed.__file__).parent / "model" / "tiny"
    return str(bundled) if model == "eddy-tiny" else model


def _texts(options: argparse.Namespace) -> list[str]:
    import torch

    torch.set_num_threads(options.threads)
    count = max(1, options.words // DOCUMENT)
    return [story(min(DOCUMENT, options.words), seed=at) for at in range(count)]


def _row(texts: list[str], clock: Clock, total: float, **more: Any) -> dict[str, Any]:
    seconds = {**clock.spent, "other": total - sum(clock.spent.values())}
    words = sum(len(text.split()) for text in texts)
    return {
        "words": words,
        "total": round(total, 3),
        "seconds": {name: round(spent, 3) for name, spent in seconds.items()},
        **more,
    }


def _kilobytes(folder: str, texts: list[str]) -> float:
    size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    return round(size / 1024 / (sum(len(text.split()) for text in texts) / 1000), 1)


def _collection(folder: str) -> Any:
    import chromadb

    return chromadb.PersistentClient(folder).create_collection(
        "rows", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
    )


def _write(collection: Any, rows: list[tuple[str, str, Any, dict[str, Any]]]) -> None:
    for at in range(0, len(rows), 1000):
        ids, texts, vectors, about = zip(*rows[at : at + 1000], strict=True)
        collection.upsert(ids=list(ids), documents=list(texts), embeddings=list(vectors), metadatas=list(about))


def _eddy(options: argparse.Namespace, late: bool) -> dict[str, Any]:
    from eddy_embed import Embedder
    from eddy_embed.model.host import ModelView
    from eddy_embed.text.sentences import Segmenter
    from eddy_embed.text.tokenizer import Tokenizer

    texts, clock = _texts(options), Clock()
    embedder = Embedder(options.model, method=options.method, dtype=options.dtype)
    with tempfile.TemporaryDirectory() as folder:
        collection = _collection(folder)
        embedder.encode_long(story(200, seed=-1), passage_size=SIZE, late=late)
        for owner, name, part in (
            (Segmenter, "sentences", "segmenting"),
            (Tokenizer, "__call__", "tokenizing"),
            (ModelView, "run", "forward"),
        ):
            clock.watch(owner, name, part)
        started = time.perf_counter()
        documents = embedder.encode_long(texts, passage_size=SIZE, late=late, parts=("passages",))
        with clock.part("writing"):
            _write(collection, _passages(documents))
        total = time.perf_counter() - started
        kilobytes = {"passages": _kilobytes(folder, texts)}
    rows = sum(len(document.passages) for document in documents)
    row = _row(texts, clock, total, rows=rows, kilobytes=kilobytes, fingerprint=embedder.fingerprint)
    if late:
        row["kilobytes"] |= _sizes(embedder, texts)
    return row


def _passages(documents: Any) -> list[tuple[str, str, Any, dict[str, Any]]]:
    return [
        (
            f"{at}/{span.start}",
            document.text[span.start : span.end],
            span.vector,
            {"start": span.start, "end": span.end},
        )
        for at, document in enumerate(documents)
        for span in document.passages
    ]


def _sizes(embedder: Any, texts: list[str]) -> dict[str, float]:
    """Kilobytes for 1,000 words of an index of documents, whose texts are not stored, and of one of sentences."""
    found = {}
    for part in ("document", "sentences"):
        with tempfile.TemporaryDirectory() as folder:
            documents = embedder.encode_long(texts, passage_size=SIZE, parts=(part,))
            rows = [
                (f"{at}/{span.start}", each.text[span.start : span.end], span.vector, {"start": span.start})
                for at, each in enumerate(documents)
                for span in each.sentences
            ] or [(str(at), "", each.vector, {"start": 0}) for at, each in enumerate(documents)]
            _write(_collection(folder), rows)
            found[part] = _kilobytes(folder, texts)
    return found


def _llama_index(options: argparse.Namespace) -> dict[str, Any]:
    from llama_index.core import Document
    from llama_index.core.node_parser import SentenceSplitter
    from llama_index.core.schema import MetadataMode
    from llama_index.embeddings.huggingface import HuggingFaceEmbedding
    from llama_index.vector_stores.chroma import ChromaVectorStore
    from sentence_transformers import SentenceTransformer

    texts, clock = _texts(options), Clock()
    model = HuggingFaceEmbedding(
        model_name=_folder(options.model), embed_batch_size=BATCH, device="cpu", model_kwargs=_dtype(options)
    )
    tokenizer = model._model.tokenizer
    splitter = SentenceSplitter(chunk_size=SIZE, chunk_overlap=0, tokenizer=tokenizer.encode)
    model.get_text_embedding(story(200, seed=-1))
    with tempfile.TemporaryDirectory() as folder:
        store = ChromaVectorStore(chroma_collection=_collection(folder))
        _watch(clock, model._model, SentenceTransformer)
        started = time.perf_counter()
        with clock.part("segmenting"):
            nodes = splitter.get_nodes_from_documents([Document(text=text, id_=str(i)) for i, text in enumerate(texts)])
        wordings = [node.get_content(MetadataMode.EMBED) for node in nodes]
        for node, vector in zip(nodes, model.get_text_embedding_batch(wordings), strict=True):
            node.embedding = vector
        with clock.part("writing"):
            store.add(nodes)
        total = time.perf_counter() - started
        return _row(texts, clock, total, rows=len(nodes), kilobytes={"passages": _kilobytes(folder, texts)})


def _langchain(options: argparse.Namespace) -> dict[str, Any]:
    import warnings

    from langchain_text_splitters import RecursiveCharacterTextSplitter
    from sentence_transformers import SentenceTransformer

    with warnings.catch_warnings():  # it announces its move to a package of its own, which wants an older library
        warnings.simplefilter("ignore")
        from langchain_community.embeddings import HuggingFaceEmbeddings

        texts, clock = _texts(options), Clock()
        model = HuggingFaceEmbeddings(
            model_name=_folder(options.model),
            model_kwargs={"device": "cpu", "model_kwargs": _dtype(options)},
            encode_kwargs={"batch_size": BATCH, "normalize_embeddings": True},
        )
    splitter = RecursiveCharacterTextSplitter.from_huggingface_tokenizer(
        model._client.tokenizer if hasattr(model, "_client") else model.client.tokenizer,
        chunk_size=SIZE,
        chunk_overlap=0,
        separators=["\n\n", "\n", ". ", " ", ""],
    )
    client = model._client if hasattr(model, "_client") else model.client
    model.embed_query(story(200, seed=-1))
    with tempfile.TemporaryDirectory() as folder:
        collection = _collection(folder)
        _watch(clock, client, SentenceTransformer)
        started = time.perf_counter()
        with clock.part("segmenting"):
            chunks = splitter.create_documents(texts)
        vectors = model.embed_documents([chunk.page_content for chunk in chunks])
        with clock.part("writing"):
            rows = [
                (str(at), chunk.page_content, vector, {"row": at})
                for at, (chunk, vector) in enumerate(zip(chunks, vectors, strict=True))
            ]
            _write(collection, rows)
        total = time.perf_counter() - started
        return _row(texts, clock, total, rows=len(chunks), kilobytes={"passages": _kilobytes(folder, texts)})


def _dtype(options: argparse.Namespace) -> dict[str, Any]:
    return {"dtype": options.dtype}


def _watch(clock: Clock, model: Any, kind: type) -> None:
    """Count what the others' library takes to tokenize and to run the model."""
    for name in ("tokenize", "preprocess"):
        if hasattr(kind, name):
            clock.watch(model, name, "tokenizing")
    clock.watch(model, "forward", "forward")


RUNS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "eddy late": lambda options: _eddy(options, late=True),
    "eddy chunk": lambda options: _eddy(options, late=False),
    "llama-index": _llama_index,
    "langchain": _langchain,
}


if __name__ == "__main__":
    main()
