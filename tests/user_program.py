"""A user's program, which mypy checks as strictly as the packages: they bring their types with them."""

from __future__ import annotations

import numpy as np
from langchain_core.documents import Document
from llama_index.core import VectorStoreIndex

from chroma_eddy import Document as Whole
from chroma_eddy import Hit, open_index
from eddy_embed import Embedder, LongDocument
from langchain_eddy import EddyChroma, EddyEmbeddings
from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.node_parser.eddy import LongDocumentNodeParser
from llama_index.vector_stores.eddy import EddyChromaVectorStore


def engine(texts: list[str]) -> float:
    embedder = Embedder("eddy-tiny", method="plain+whiten")
    embedder.fit(texts).save("post.npz")
    document: LongDocument = embedder.encode_long(texts[0])
    vectors = embedder.encode(texts)
    return float(np.max(vectors @ document.vector))


def langchain(documents: list[Document], folder: str) -> list[Document]:
    embeddings = EddyEmbeddings(model_name="eddy-tiny", method="plain+whiten").fit(documents)
    embeddings.save(folder)
    store: EddyChroma = EddyChroma.from_texts(["One.", "Two."], EddyEmbeddings.load(folder))
    return store.as_retriever(search_kwargs={"alpha": 0.7}).invoke("Which?")


def llama_index(folder: str) -> list[str]:
    model: EddyEmbedding = EddyEmbedding("eddy-tiny").fit(["One. Two."])
    store = EddyChromaVectorStore("notes", model, persist_dir=folder)
    parser = LongDocumentNodeParser(embed_model=store.embed_model)
    index = VectorStoreIndex.from_vector_store(store, embed_model=parser.embed_model)
    return [found.get_content() for found in index.as_retriever().retrieve("Which?")]


def chroma(folder: str) -> list[str]:
    with open_index(folder, "notes", Embedder("eddy-tiny")) as index:
        index.upsert([Whole("one", "One. Two.")])
        hits: list[Hit] = index.query("Which?", 3)
    return [hit.text for hit in hits]
