"""Stages of tests' own, in a module that Ray's processes can import."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from eddy_embed import LongDocument, Passage
from ray_eddy.actors import EmbedDocuments


class Fast(EmbedDocuments):
    """Has half a megabyte of vectors for each document at once, and counts documents in a file."""

    def _encode(self, texts: list[str]) -> list[LongDocument]:
        with open(os.environ["EDDY_TEST_COUNT"], "ab") as file:
            file.write(b"." * len(texts))
        vectors = np.ones((400, 320), np.float32)
        spans = [Passage(at, at + 1, 1, vector, at, at) for at, vector in enumerate(vectors)]
        return [LongDocument(text, vectors[0], spans, [], 1, 1, 0) for text in texts]


class Slow(EmbedDocuments):
    """Takes so long that something is left to do whenever it is killed."""

    def __call__(self, table: Any) -> Any:
        time.sleep(0.2)
        return super().__call__(table)
