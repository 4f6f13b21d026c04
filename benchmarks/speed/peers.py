"""Eddy beside what people use: the same model folder, pooling, texts, threads and type of number."""

from __future__ import annotations

import contextlib
import json
import subprocess
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from output import say

from speed.timing import ratio, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

Encode = Callable[[list[str]], Any]
Batched = Callable[[int], Encode]
"""What encodes texts, for a batch size."""
SIZES = (1, 4, 16, 64)
"""Batch sizes of the peers that are tried beside their default, to find their best."""
WORSE = 1.5
"""Times the best, behind which no larger batch is tried."""
QUERIES = (11, 30)
"""Rounds for one query, which takes milliseconds, and how often it is asked in each."""
NEAR = {"float32": 1e-4, "bfloat16": 2e-2}
"""Largest difference of a component for which two libraries are taken to compute the same vectors."""


@dataclass(frozen=True)
class Peer:
    """A library as its users call it.

    Attributes:
        name: Its class.
        batch: What it is called with by default.
        make: Loads a model folder, in a type of number; None: in its own default.
        beside: Whether it runs in another environment, so that other vectors may be its own and not ours.
    """

    name: str
    batch: int
    make: Callable[[Path, str | None], Batched]
    beside: bool = False


def _sentence_transformers(folder: Path, dtype: str | None) -> Batched:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu", model_kwargs=_typed(dtype))
    return lambda size: partial(model.encode, batch_size=size, normalize_embeddings=True, show_progress_bar=False)


def _llama_index(folder: Path, dtype: str | None) -> Batched:
    from llama_index.embeddings.huggingface import HuggingFaceEmbedding

    model = HuggingFaceEmbedding(model_name=str(folder), device="cpu", model_kwargs=_typed(dtype))

    def batched(size: int) -> Encode:
        def encode(texts: list[str]) -> Any:
            model.embed_batch_size = size
            return model.get_text_embedding_batch(texts)

        return encode

    return batched


def _langchain(folder: Path, dtype: str | None) -> Batched:
    with warnings.catch_warnings():  # it announces its move to a package of its own, with the same code
        warnings.simplefilter("ignore")
        from langchain_community.embeddings import HuggingFaceEmbeddings

        model = HuggingFaceEmbeddings(
            model_name=str(folder), model_kwargs={"device": "cpu", "model_kwargs": _typed(dtype)}
        )

    def batched(size: int) -> Encode:
        def encode(texts: list[str]) -> Any:
            model.encode_kwargs = {"batch_size": size, "normalize_embeddings": True}
            return model.embed_documents(texts)

        return encode

    return batched


def _typed(dtype: str | None) -> dict[str, str]:
    return {} if dtype is None else {"dtype": dtype}


def openvino(python: Path) -> Peer:
    """sentence-transformers with its OpenVINO backend, in an interpreter of its own.

    Args:
        python: The interpreter; it has sentence-transformers[openvino].
    """

    def make(folder: Path, dtype: str | None) -> Batched:
        worker = _Worker(python)
        precision = {None: None, "float32": "f32", "bfloat16": "bf16"}[dtype]
        found = worker.ask({"load": str(folder), "precision": precision, "threads": torch.get_num_threads()})
        say(f"OpenVINO's process: {found}")
        return lambda size: partial(worker.encode, size)

    return Peer("SentenceTransformer (OpenVINO)", 32, make, beside=True)


class _Worker:
    """A process that answers as `openvino_worker` says; it is ended when nobody holds it."""

    def __init__(self, python: Path) -> None:
        program = Path(__file__).with_name("openvino_worker.py")
        process = subprocess.Popen([str(python), str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        weakref.finalize(self, process.kill)
        self._process, self._into, self._answers = process, cast("Any", process.stdin), cast("Any", process.stdout)
        self._texts: list[str] = []

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with contextlib.suppress(BrokenPipeError):  # it ended; the answer says so
            self._into.write(json.dumps(request).encode() + b"\n")
            self._into.flush()
        answer = self._answers.readline()
        if not answer:
            raise SystemExit(f"OpenVINO's process ended with {self._process.wait()}; it was asked {str(request)[:200]}")
        return dict(json.loads(answer))

    def encode(self, size: int, texts: list[str]) -> Any:
        if texts is not self._texts:
            self.ask({"texts": texts})
            self._texts = texts
        shape = self.ask({"batch_size": size})["shape"]
        return np.frombuffer(self._answers.read(4 * shape[0] * shape[1]), np.float32).reshape(shape)


PEERS = (
    Peer("SentenceTransformer", 32, _sentence_transformers),
    Peer("HuggingFaceEmbedding (LlamaIndex)", 10, _llama_index),
    Peer("HuggingFaceEmbeddings (LangChain)", 32, _langchain),
)


def _eddy(peer: Peer, folder: Path, dtype: str | None) -> Encode:
    """Our class for the peer's framework."""
    more = {"device": "cpu", **_typed(dtype)}
    if "LlamaIndex" in peer.name:
        from llama_index.embeddings.eddy import EddyEmbedding

        return EddyEmbedding(model_name=str(folder), method="plain", **more).get_text_embedding_batch
    if "LangChain" in peer.name:
        from langchain_eddy import EddyEmbeddings

        return EddyEmbeddings(model_name=str(folder), method="plain", **more).embed_documents
    from eddy_embed import Embedder

    return Embedder(str(folder), method="plain", **more).encode_document


def rows(
    folder: Path, texts: dict[str, list[str]], dtype: str | None, rounds: int, peer: Peer
) -> Iterator[dict[str, Any]]:
    """The peer's time over ours, at its default batch size and at its best one.

    Args:
        folder: The model.
        texts: Of each sort.
        dtype: Type of number; None for everyone's own default.
        rounds: Pairs of each; `QUERIES` where there is one text.
        peer: Whose. One of another environment whose vectors are others has no time.
    """
    ours, theirs = _eddy(peer, folder, dtype), peer.make(folder, dtype)
    for sort, chosen in texts.items():
        gap = float(np.abs(np.asarray(ours(chosen[:8])) - np.asarray(theirs(peer.batch)(chosen[:8]))).max())
        shown = None if np.isnan(gap) else float(f"{gap:.1e}")
        said = {"peer": peer.name, "dtype": dtype or "own default", "texts": sort, "gap": shown}
        if not gap <= NEAR[dtype or "bfloat16"]:
            if not peer.beside:
                raise SystemExit(f"{peer.name}, {dtype}: its vectors differ from ours by {gap}")
            yield {**said, "time": None}
            continue
        best = _best(theirs, peer.batch, chosen) if len(chosen) > 1 else peer.batch
        often = (rounds, 1) if len(chosen) > 1 else QUERIES
        for size in dict.fromkeys((peer.batch, best)):
            found = ratio(partial(theirs(size), chosen), partial(ours, chosen), *often)
            which = " and ".join(["default"] * (size == peer.batch) + ["best"] * (size == best))
            yield {**said, "batch_size": size, "which": which, "time": found.row()}


def _best(theirs: Batched, usual: int, texts: list[str]) -> int:
    """The batch size with which a peer is fastest on these texts, each measured once after a few texts.

    Sizes rise until one takes `WORSE` times as long as the best, since larger ones are filled up still more.
    """
    spent: dict[int, float] = {}
    for size in sorted({usual, *SIZES}):
        theirs(size)(texts[:4])
        spent[size] = seconds(partial(theirs(size), texts))
        if spent[size] > WORSE * min(spent.values()):
            break
    return min(spent, key=lambda size: spent[size])
