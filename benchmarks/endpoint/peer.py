"""What most people write: sentence-transformers behind FastAPI. Run by uvicorn as `endpoint.peer:made`."""

from __future__ import annotations

import base64
import os
import threading
from typing import Any

import torch
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from endpoint.servers import MODEL, THREADS


class Asked(BaseModel):
    """A request."""

    model: str
    input: list[str]
    encoding_format: str


def made() -> FastAPI:
    """The application, with the mean of the last states in float32 on the processor."""
    if threads := os.environ.get(THREADS):
        torch.set_num_threads(int(threads))
    transformer = Transformer(os.environ[MODEL], model_kwargs={"dtype": "float32"})
    pooling = Pooling(transformer.get_embedding_dimension(), "mean")
    encoder = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    turn = threading.Lock()
    app = FastAPI()

    @app.post("/v1/embeddings")
    def embeddings(asked: Asked) -> dict[str, Any]:
        with turn:  # a fast tokenizer refuses a second thread
            vectors = encoder.encode(asked.input, normalize_embeddings=True, show_progress_bar=False)
        shown = [base64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in vectors]
        rows = [{"object": "embedding", "index": at, "embedding": each} for at, each in enumerate(shown)]
        return {"object": "list", "data": rows, "model": asked.model}

    return app
