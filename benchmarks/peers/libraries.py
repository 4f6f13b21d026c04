"""Libraries that embed, as their users call them: the same model file, mean pooling, one process each or this one."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from output import say
from transformers import AutoModelForCausalLM

from eddy_embed import Embedder
from eddy_embed.model.loading.gguf.open import open_gguf
from eddy_embed.model.loading.names import locate

Encode = Callable[[list[str]], Any]
Batched = Callable[[int], Encode]
"""What encodes texts, for a batch size."""
METHOD = "plain+start:token=none"
"""What every library computes: the mean of the last layer, over the tokens that the tokenizer gives."""


@dataclass(frozen=True)
class ModelFiles:
    """One model, in the two forms that libraries read.

    Attributes:
        file: The file (or folder) as it is shipped.
        folder: The same weights in bfloat16, as a folder of sentence-transformers with mean pooling.
    """

    file: Path
    folder: Path

    @classmethod
    def of(cls, model: str, under: Path) -> ModelFiles:
        """The files of a model, by its name, GGUF file or folder; the folder with pooling is made once."""
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

        file = Path(locate(model))
        folder = under / file.name.removesuffix(".gguf")
        if not (folder / "modules.json").exists():
            bare = under / "bare"
            if file.is_file():
                _unpack(file, bare)
            else:
                # With a chat template, sentence-transformers would embed a conversation that holds the text.
                shutil.copytree(file, bare, ignore=shutil.ignore_patterns("chat_template*"))
            transformer = Transformer(str(bare), model_kwargs={"dtype": "bfloat16"})
            pooling = Pooling(transformer.get_embedding_dimension(), "mean")
            SentenceTransformer(modules=[transformer, pooling]).save(str(folder))
            shutil.rmtree(bare)
        return cls(file, folder)


def _unpack(file: Path, folder: Path) -> None:
    """Write a GGUF file's model with weights in bfloat16, and its tokenizer without a chat template."""
    packed, tokenizer, _ = open_gguf(str(file), device="cpu", dtype="bfloat16", head=True)
    model = AutoModelForCausalLM.from_config(packed.config, dtype=torch.bfloat16)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            module, _, kind = name.rpartition(".")
            weight.copy_(getattr(packed.get_submodule(module), kind))
    model.save_pretrained(folder)
    tokenizer.chat_template = None
    tokenizer.save_pretrained(folder)


def _eddy(files: ModelFiles) -> Encode:
    return Embedder(str(files.file), method=METHOD, device="cpu").encode_document


@dataclass(frozen=True)
class Peer:
    """A library in one number format.

    Attributes:
        name: The library, and its number format.
        make: Loads a model.
        batch: Texts in a batch by default.
        sizes: Other batch sizes that are tried, to find the fastest.
        cosine: Least cosine of its vectors with Eddy's in bfloat16.
        eddy: Loads the model with Eddy's class for the same place.
    """

    name: str
    make: Callable[[ModelFiles], Batched]
    batch: int = 32
    sizes: tuple[int, ...] = (1, 4, 16, 64)
    cosine: float = 0.995
    eddy: Callable[[ModelFiles], Encode] = _eddy


def _sentence_transformers(files: ModelFiles) -> Batched:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(files.folder), device="cpu")
    return lambda size: partial(model.encode, batch_size=size, normalize_embeddings=True, show_progress_bar=False)


def _llama_index(files: ModelFiles) -> Batched:
    from llama_index.embeddings.huggingface import HuggingFaceEmbedding

    model = HuggingFaceEmbedding(model_name=str(files.folder), device="cpu")
    return lambda _: model.get_text_embedding_batch


def _eddy_in_llama_index(files: ModelFiles) -> Encode:
    from llama_index.embeddings.eddy import EddyEmbedding

    return EddyEmbedding(model_name=str(files.file), method=METHOD, device="cpu").get_text_embedding_batch


def _langchain(files: ModelFiles) -> Batched:
    with warnings.catch_warnings():  # it announces its move to a package of its own, with the same code
        warnings.simplefilter("ignore")
        from langchain_community.embeddings import HuggingFaceEmbeddings

        model = HuggingFaceEmbeddings(
            model_name=str(files.folder),
            model_kwargs={"device": "cpu"},
            encode_kwargs={"normalize_embeddings": True},
        )
    return lambda _: model.embed_documents


def _eddy_in_langchain(files: ModelFiles) -> Encode:
    from langchain_eddy import EddyEmbeddings

    return EddyEmbeddings(model_name=str(files.file), method=METHOD, device="cpu").embed_documents


EDDY = Peer("Eddy, bfloat16", lambda files: lambda _: _eddy(files), batch=0, sizes=())
"""What the others are compared with."""
PEERS = (
    Peer("sentence-transformers, bfloat16", _sentence_transformers),
    # Both call sentence-transformers, whose best batch size is theirs; they run at their default one.
    Peer("LlamaIndex HuggingFaceEmbedding, bfloat16", _llama_index, 10, (), eddy=_eddy_in_llama_index),
    Peer("LangChain HuggingFaceEmbeddings, bfloat16", _langchain, 32, (), eddy=_eddy_in_langchain),
)


def llama_cpp(python: Path) -> tuple[Peer, ...]:
    """llama.cpp on the file as it is shipped, and on the same weights in other formats.

    Args:
        python: The interpreter; it has llama-cpp-python.
    """

    def make(files: ModelFiles, weights: str | None) -> Batched:
        wanted = str(files.folder.with_name(f"{files.folder.name}-{weights}.gguf"))
        return _elsewhere(python, "llama_cpp_worker.py", {"load": str(files.file), "weights": weights, "as": wanted})

    formats = {"as shipped": None, "Q8_0": "Q8_0", "BF16": "BF16"}
    # Several texts in one call take longer: each is masked against all others.
    return tuple(
        Peer(f"llama.cpp, {name}", partial(make, weights=weights), batch=1, sizes=(), cosine=0.95)
        for name, weights in formats.items()
    )


def openvino(python: Path) -> tuple[Peer, ...]:
    """sentence-transformers with its OpenVINO backend, in bfloat16 and in int8.

    Args:
        python: The interpreter; it has sentence-transformers[openvino].
    """

    def make(files: ModelFiles, int8: bool) -> Batched:
        return _elsewhere(python, "openvino_worker.py", {"load": str(files.folder), "int8": int8})

    return (
        Peer("sentence-transformers (OpenVINO), bfloat16", partial(make, int8=False)),
        Peer("sentence-transformers (OpenVINO), int8", partial(make, int8=True), cosine=0.95),
    )


def _elsewhere(python: Path, program: str, asked: dict[str, Any]) -> Batched:
    """What encodes in a process of its own, which loads what is asked for."""
    worker = _Worker(python, program)
    say(f"{program}: {worker.ask({**asked, 'threads': torch.get_num_threads()})}")
    return lambda size: partial(worker.encode, size)


class _Worker:
    """A process that answers as `worker` says; it is ended when nobody holds it."""

    def __init__(self, python: Path, program: str) -> None:
        path = Path(__file__).with_name(program)
        process = subprocess.Popen([str(python), str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        weakref.finalize(self, process.kill)
        self._process, self._into, self._answers = process, cast("Any", process.stdin), cast("Any", process.stdout)
        self._program, self._texts = program, list[str]()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with contextlib.suppress(BrokenPipeError):  # it ended; the answer says so
            self._into.write(json.dumps(request).encode() + b"\n")
            self._into.flush()
        answer = self._answers.readline()
        if not answer:
            ended = self._process.wait()
            raise SystemExit(f"{self._program} ended with {ended}; it was asked {str(request)[:200]}")
        return dict(json.loads(answer))

    def encode(self, size: int, texts: list[str]) -> Any:
        if texts is not self._texts:
            self.ask({"texts": texts})
            self._texts = texts
        shape = self.ask({"batch_size": size})["shape"]
        return np.frombuffer(self._answers.read(4 * shape[0] * shape[1]), np.float32).reshape(shape)
