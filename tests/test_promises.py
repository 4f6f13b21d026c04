"""What the README promises, asked of public names alone: it stays as it is while the code beneath it is rewritten."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import chromadb
import httpx
import numpy as np
import pytest
import torch
import uvicorn
from langchain_core.documents import Document as Page
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from llama_index.core import Document as Text
from llama_index.core import StorageContext, VectorStoreIndex, load_index_from_storage
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters
from openai import NotFoundError, OpenAI
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForCausalLM, Gemma3TextConfig, GPT2Config, LlamaConfig
from transformers import PreTrainedTokenizerFast as FastTokenizer

from chroma_eddy import Document, EddyEmbeddingFunction, Index, open_collection, open_index
from eddy_embed import Embedder, Reranker
from eddy_embed.errors import EddyError, FingerprintMismatch, InvalidText, TextTooLong, UnknownMethod
from langchain_eddy import EddyChroma, EddyEmbeddings, EddyReranker, SentenceTextSplitter, embed_passages
from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.node_parser.eddy import LongDocumentNodeParser
from llama_index.postprocessor.eddy import EddyRerank
from llama_index.vector_stores.eddy import EddyChromaVectorStore
from openai_eddy import create_app

OFFICE = "The harbour office is closed on Mondays."
SENTENCES = ["The ferry to Fårö leaves at noon.", "Mr. Hale pays $3.50 for a dog.", "“Is it late?” he asked.", OFFICE]
FERRY = "# The ferry\n\n" + "  ".join(SENTENCES)
BREAD = "Bread rises because yeast turns sugar into gas. Bakers wait for it. Salt slows the yeast down."
STONE = "Granite cools slowly, deep under the ground. Its crystals are large."
LIBRARY = [("ferry.txt", FERRY, 1921), ("bread.txt", BREAD, 1934), ("stone.txt", STONE, 1934)]
TEXTS = [SENTENCES[0], BREAD, STONE]
QUESTION = "When is the harbour office closed?"
METHODS = (
    *("tp:range=1-3", "htp:range=1-3", "kv:layers=2-4", "reba", "plain+tempscale:tau=0.6", "plain:pool=last"),
    *("prompteol", "cot", "knowledge", "metaeol", "echo", "plain:exit=0+sif", "plain:exit=0+sif+standardise"),
)
SIZES: dict[str, Any] = {
    **{"vocab_size": 400, "num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 4, "sliding_window": 64},
    **{"intermediate_size": 64, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512},
}


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """A byte-level BPE, so that any text has tokens."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False))
    return FastTokenizer(tokenizer_object=bpe, model_max_length=512)


@pytest.fixture(scope="session")
def loaded() -> Any:
    """A model that somebody has loaded, for answers."""
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(LlamaConfig(**SIZES)).eval()


@pytest.fixture(scope="session")
def tiny() -> Embedder:
    """The bundled model, reading some of its layers."""
    return Embedder("eddy-tiny", method="plain:exit=2", query_instruction="Find: ", check=False)


@pytest.fixture(scope="session")
def plain(loaded: Any, tokenizer: Any) -> Embedder:
    """The loaded model, read as it is."""
    return Embedder(loaded, method="plain", tokenizer=tokenizer, check=False)


@pytest.fixture
def shelf(tiny: Embedder, tmp_path: Path) -> Iterator[Index]:
    """An index of three documents in a folder."""
    with open_index(tmp_path / "db", "shelf", tiny, passage_size=40) as index:
        index.upsert(Document(name, text, {"year": year}) for name, text, year in LIBRARY)
        yield index


def near(vectors: Any, expected: Any, most: float = 1e-5) -> bool:
    """Whether no component differs by more."""
    return bool(np.abs(np.subtract(vectors, expected)).max() <= most)


def state(model: Any, tokenizer: Any) -> tuple[Any, ...]:
    """Everything of a loaded model and its tokenizer that sharing them could change."""
    parts = [(name, type(part), part.training, len(part._forward_hooks)) for name, part in model.named_modules()]
    tensors = dict([*model.named_parameters(), *model.named_buffers()])
    with torch.no_grad():
        tensors["logits"] = model(torch.arange(12)[None]).logits
    written = {name: tensor.detach().numpy().tobytes() for name, tensor in tensors.items()}
    return written, parts, model.config.to_dict(), tokenizer.backend_tokenizer.to_str(), tokenizer.padding_side


class Interrupted(TorchFunctionMode):
    """Ctrl-C in the second layer."""

    layers = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.layers += function is torch.nn.functional.silu
        if self.layers == 2:
            raise KeyboardInterrupt
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("form", METHODS)
def test_a_method_by_its_name(form: str, loaded: Any, tokenizer: Any, plain: Embedder) -> None:
    embedder = Embedder(loaded, form, tokenizer=tokenizer, check=False)
    again = Embedder(loaded, str(embedder.method), tokenizer=tokenizer, check=False)
    assert str(embedder.method).startswith(form.partition(":")[0].partition("+")[0])
    assert (again.method, again.fingerprint) == (embedder.method, embedder.fingerprint)
    together = embedder.encode_document(TEXTS)
    assert together.dtype == np.float32 and together.shape == (3, embedder.dimension)
    assert near(np.linalg.norm(together, axis=1), 1)
    assert near(together, [embedder.encode_document(text) for text in TEXTS])
    assert not near(together, plain.encode_document(TEXTS), 1e-3) and embedder.fingerprint != plain.fingerprint


@pytest.mark.parametrize("config", [LlamaConfig, Gemma3TextConfig, GPT2Config])
def test_plain_is_what_the_model_says(config: Any, tokenizer: Any) -> None:
    model = AutoModelForCausalLM.from_config(config(**SIZES)).eval()
    for pool, pooled in {"mean": lambda states: states.mean(0), "last": lambda states: states[-1]}.items():
        vectors = Embedder(model, f"plain:pool={pool}", tokenizer=tokenizer, check=False).encode_document(TEXTS)
        for text, vector in zip(TEXTS, vectors, strict=True):
            with torch.no_grad():
                outputs = model(torch.tensor([tokenizer(text)["input_ids"]]), output_hidden_states=True)
            expected = pooled(outputs.hidden_states[-1][0].numpy())
            assert near(vector, expected / np.linalg.norm(expected)), pool


def test_queries_have_their_instruction_and_mistakes_an_answer(tiny: Embedder) -> None:
    instructed = tiny.with_instructions(text="Find: ")
    assert near(tiny.encode_query(QUESTION), instructed.encode_document(QUESTION))
    assert not near(tiny.encode_query(QUESTION), tiny.encode_document(QUESTION), 1e-3)
    with pytest.raises(UnknownMethod, match="htp"):
        Embedder("eddy-tiny", method="hpt")
    with pytest.raises(InvalidText, match="blank"):
        tiny.encode_document(["fine", "  "])
    with pytest.raises(EddyError, match="no-such-model"):
        Embedder("./no-such-model")


def test_a_shared_model_stays_as_it_was(tokenizer: Any) -> None:
    loaded = AutoModelForCausalLM.from_config(LlamaConfig(**SIZES)).eval()  # one that nothing has shared yet
    before, prompt = state(loaded, tokenizer), tokenizer(TEXTS[0], return_tensors="pt")["input_ids"]
    alone = loaded.generate(prompt, max_new_tokens=24, do_sample=False)
    for form in ("htp:range=1-3", "kv:layers=2-4", "reba", "plain+tempscale"):
        embedder = Embedder(loaded, form, tokenizer=tokenizer, check=False)
        with ThreadPoolExecutor(1) as beside:
            meanwhile = beside.submit(loaded.generate, prompt, max_new_tokens=24, do_sample=False)
            vectors = [embedder.encode_document(TEXTS) for _ in range(8)]
        assert torch.equal(meanwhile.result(), alone) and np.array_equal(vectors[0], vectors[-1])
        assert embedder.shares_model and state(loaded, tokenizer) == before
        with pytest.raises(KeyboardInterrupt), Interrupted():
            embedder.encode_document(TEXTS)
        assert state(loaded, tokenizer) == before
        assert np.array_equal(embedder.encode_document(TEXTS), vectors[0])
    weight = loaded.model.layers[0].mlp.down_proj.weight
    with torch.no_grad():
        saved = weight.clone()
        weight.mul_(9)
        assert not near(embedder.encode_document(TEXTS), vectors[0], 1e-4), "it runs on a copy of the weights"
        weight.copy_(saved)


def test_a_long_document_has_exact_offsets(tiny: Embedder) -> None:
    read = tiny.encode_long(FERRY, passage_size=24)
    assert [FERRY[part.start : part.end] for part in read.sentences] == ["# The ferry", *SENTENCES]
    assert len(read.passages) > 1
    for passage in read.passages:
        first, last = read.sentences[passage.first_sentence], read.sentences[passage.last_sentence]
        assert (passage.start, passage.end, passage.headings) == (first.start, last.end, ("The ferry",))
    for parts in (read.sentences, read.passages):
        ends = [0, *(part.end for part in parts)]
        assert not "".join(FERRY[end : part.start] for end, part in zip(ends, parts, strict=False)).strip()
        assert near([np.linalg.norm(part.vector) for part in parts], 1)
    late = tiny.encode_long([FERRY, BREAD], late=True)[0]
    assert near(late.vector, tiny.encode_document(FERRY))


def test_a_text_beyond_the_window_is_read_to_its_end() -> None:
    text = " ".join(f"Sentence {number} of a long report on tides." for number in range(40))
    windowed = Embedder("eddy-tiny", method="htp:range=1-2,exit=2", max_length=96, check=False)
    read = windowed.encode_long(text, passage_size=32, late=True)
    assert (read.n_windows > 4, read.n_truncated) == (True, 0)
    assert read.n_tokens == windowed.count_tokens(text) > 96
    assert "".join(text[part.start : part.end] + " " for part in read.sentences) == text + " "
    assert not near(windowed.encode_document(text[:-1] + " and floods."), windowed.encode_document(text), 1e-4)
    assert windowed.counts.windowed_texts == 3
    with pytest.raises(TextTooLong, match="96"):
        Embedder("eddy-tiny", "htp:exit=2", max_length=96, overflow="error", check=False).encode_document(text)
    cutting = Embedder("eddy-tiny", "plain:exit=2", max_length=96, overflow="truncate", check=False)
    cut = cutting.encode_long(text, late=True)
    assert (cut.n_windows, cut.n_truncated + 96 >= read.n_tokens) == (1, True)


def test_an_index_finds_by_words_and_meaning(shelf: Index, tiny: Embedder) -> None:
    hit = shelf.query(QUESTION, k=3, sentences=True)[0]
    assert (hit.document, hit.text) == ("ferry.txt", FERRY[hit.start : hit.end])
    assert len(hit.sentences) > 1
    assert hit.best is not None and hit.best.text == OFFICE == FERRY[hit.best.start : hit.best.end]
    assert hit.bm25 and {FERRY[match.start : match.end] for match in hit.matches} >= {"harbour", "office", "closed"}
    by_vectors = shelf.query(QUESTION, k=9, alpha=1.0)
    assert [hit.cosine for hit in by_vectors] == sorted((hit.cosine for hit in by_vectors), reverse=True)
    passages = tiny.encode_long(FERRY, passage_size=40).passages
    cosines = {(part.start, part.end): float(part.vector @ tiny.encode_query(QUESTION)) for part in passages}
    found = {(hit.start, hit.end): hit.cosine for hit in by_vectors if hit.document == "ferry.txt"}
    assert found == pytest.approx(cosines, abs=1e-4)
    assert [hit.document for hit in shelf.query("yeast", k=1, alpha=0.0)] == ["bread.txt"]
    assert {hit.document for hit in shelf.query(QUESTION, k=9, where={"year": 1934})} == {"bread.txt", "stone.txt"}
    assert {hit.document for hit in shelf.query(QUESTION, k=9, documents=["stone.txt"])} == {"stone.txt"}
    assert len({hit.document for hit in shelf.query(QUESTION, k=3, unit="document")}) == 3
    assert shelf.query("granite crystals", k=2, rerank=True)[0].document == "stone.txt"


def test_an_index_is_kept_changed_and_guarded(shelf: Index, tiny: Embedder, tmp_path: Path) -> None:
    first = [(hit.id, round(hit.score, 5)) for hit in shelf.query(QUESTION, k=9)]
    counted = tiny.counts.texts
    shelf.upsert([Document("ferry.txt", FERRY, {"year": 1921})])
    assert tiny.counts.texts == counted, "what has not changed is not embedded again"
    shelf.close()
    with open_index(tmp_path / "db", "shelf", tiny) as again:
        assert [(hit.id, round(hit.score, 5)) for hit in again.query(QUESTION, k=9)] == first
        again.upsert([Document("stone.txt", "The lighthouse is white.")])
        assert [hit.document for hit in again.query("granite crystals", k=9, alpha=0.0)] == []
        assert again.query("lighthouse", k=1)[0].text == "The lighthouse is white."
        assert again.remove(["ferry.txt"]) == 1
        assert {hit.document for hit in again.query(QUESTION, k=9)} == {"bread.txt", "stone.txt"}
    for method, instruction, differs in (("plain:exit=3", "Find: ", "exit"), ("plain:exit=2", "Seek: ", "instruction")):
        other = Embedder("eddy-tiny", method, query_instruction=instruction, check=False)
        with pytest.raises(FingerprintMismatch, match=differs), open_index(tmp_path / "db", "shelf", other):
            pytest.fail("opened")
    with open_index(tmp_path / "db", "shelf") as unopened:
        assert (unopened.status().documents, unopened.status().fingerprint) == (2, tiny.fingerprint)


def test_a_collection_of_chroma_knows_its_function(tmp_path: Path, loaded: Any, tokenizer: Any) -> None:
    client = chromadb.PersistentClient(str(tmp_path), settings=chromadb.Settings(anonymized_telemetry=False))
    function = EddyEmbeddingFunction(model_name="eddy-tiny", method="plain:exit=2")
    open_collection(client, "facts", function).upsert(ids=["ferry", "bread"], documents=[FERRY, BREAD])
    found = client.get_collection("facts").query(query_texts=[BREAD], n_results=1)  # it holds its settings
    assert found["ids"] == [["bread"]] and found["distances"][0][0] == pytest.approx(0, abs=1e-4)
    assert open_collection(client, "facts", function).count() == 2
    with pytest.raises(FingerprintMismatch, match="exit"):
        open_collection(client, "facts", EddyEmbeddingFunction(model_name="eddy-tiny", method="plain:exit=3"))
    foreign = EddyEmbeddingFunction.from_model(loaded, tokenizer, method="plain:exit=2")
    with pytest.raises(FingerprintMismatch, match=r"eddy-tiny|weights|model"):
        open_collection(client, "facts", foreign)


def test_llama_index(tiny: Embedder, tmp_path: Path) -> None:
    model = EddyEmbedding(model_name="eddy-tiny", method="plain:exit=2", query_instruction="Find: ")
    assert near(model.get_text_embedding_batch(TEXTS), tiny.encode_document(TEXTS))
    assert near(model.get_query_embedding(QUESTION), tiny.encode_query(QUESTION))
    texts = [Text(text=text, id_=name, metadata={"year": year}) for name, text, year in LIBRARY]
    parser = LongDocumentNodeParser(embed_model=model, passage_size=24)
    nodes = parser.get_nodes_from_documents(texts)
    assert len(nodes) > len(texts) and all(node.embedding for node in nodes)
    for node in nodes:
        text = next(text.text for text in texts if text.id_ == node.ref_doc_id)
        assert node.get_content() == text[node.start_char_idx : node.end_char_idx]
    plain_index = VectorStoreIndex(nodes, embed_model=model)
    plain_index.storage_context.persist(folder := str(tmp_path / "storage"))
    model.save(folder)
    storage = StorageContext.from_defaults(persist_dir=folder)
    reopened = load_index_from_storage(storage, embed_model=EddyEmbedding.load(folder))
    store = EddyChromaVectorStore.from_params("notes", model, persist_dir=str(tmp_path / "db"))
    context = StorageContext.from_defaults(vector_store=store)
    in_chroma = VectorStoreIndex(nodes, storage_context=context, embed_model=model)
    answers = [
        [found.node.node_id for found in index.as_retriever(similarity_top_k=3, alpha=1).retrieve(QUESTION)]
        for index in (plain_index, reopened, in_chroma)
    ]
    assert answers[0] == answers[1] == answers[2]
    late = MetadataFilters(filters=[MetadataFilter(key="year", value=1934)])
    filtered = in_chroma.as_retriever(similarity_top_k=9, filters=late).retrieve(QUESTION)
    assert {found.node.ref_doc_id for found in filtered} == {"bread.txt", "stone.txt"}
    hybrid = in_chroma.as_retriever(similarity_top_k=9).retrieve(QUESTION)
    assert "closed on Mondays" in hybrid[0].get_content()
    reranked = EddyRerank("eddy-tiny", top_n=2).postprocess_nodes(hybrid, query_str="granite crystals")
    assert len(reranked) == 2 and reranked[0].node.ref_doc_id == "stone.txt"
    in_chroma.delete_ref_doc("bread.txt")
    left = in_chroma.as_retriever(similarity_top_k=9, filters=late).retrieve(QUESTION)
    assert {found.node.ref_doc_id for found in left} == {"stone.txt"}
    store.index.close()
    with pytest.raises(FingerprintMismatch, match="exit"):
        other = EddyEmbedding(model_name="eddy-tiny", method="plain:exit=3", query_instruction="Find: ")
        EddyChromaVectorStore.from_params("notes", other, persist_dir=str(tmp_path / "db"))


def test_langchain(tiny: Embedder, tmp_path: Path) -> None:
    embeddings = EddyEmbeddings(model_name="eddy-tiny", method="plain:exit=2", query_instruction="Find: ")
    assert near(embeddings.embed_documents(TEXTS), tiny.encode_document(TEXTS))
    assert near(embeddings.embed_query(QUESTION), tiny.encode_query(QUESTION))
    splitter = SentenceTextSplitter.from_embeddings(embeddings, chunk_size=16, add_start_index=True)
    for chunk in splitter.create_documents([FERRY]):
        assert FERRY[chunk.metadata["start_index"] :].startswith(chunk.page_content)
    pages = [Page(text, id=name, metadata={"year": year}) for name, text, year in LIBRARY]
    passage = list(embed_passages(pages[:1], embeddings, passage_size=24))[-1].document
    assert passage.page_content == FERRY[passage.metadata["start_index"] : passage.metadata["end_index"]] == OFFICE
    shelf = EddyChroma("shelf", embeddings, persist_directory=str(tmp_path), passage_size=24)
    shelf.ingest(pages)
    shelf.add_documents([Page("The lighthouse is white.", metadata={"source": "letter.txt"})])
    retriever = shelf.as_retriever(search_kwargs={"k": 2, "filter": {"year": 1921}})
    answer = RunnableLambda(lambda given: f"{given['question']} {given['context'][0].page_content}")
    chain = {"context": retriever, "question": RunnablePassthrough()} | answer
    assert "closed on Mondays" in chain.invoke(QUESTION)
    found, vector = shelf.similarity_search_with_vectors("The lighthouse is white.", k=1)[0]
    assert found.metadata["source"] == "letter.txt" and near(vector, tiny.encode_document(found.page_content), 1e-4)
    reranked = EddyReranker(model="eddy-tiny", top_n=1).compress_documents(pages, "granite crystals")
    assert [page.id for page in reranked] == ["stone.txt"]
    shelf.index.close()
    with pytest.raises(FingerprintMismatch, match="exit"):
        EddyChroma("shelf", EddyEmbeddings(model="eddy-tiny", method="plain:exit=3"), persist_directory=str(tmp_path))


def test_any_client_of_openai(tiny: Embedder) -> None:
    app = create_app({"plain": tiny}, ["eddy-tiny"], reranker=Reranker("eddy-tiny"))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        root = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        with OpenAI(base_url=f"{root}/v1", api_key="none") as client:
            answer = client.embeddings.create(model="eddy-tiny", input=TEXTS)
            query = client.embeddings.create(model="eddy-tiny", input=QUESTION, extra_body={"role": "query"})
            assert [model.id for model in client.models.list()] == ["eddy-tiny"]
            with pytest.raises(NotFoundError, match="ada"):
                client.embeddings.create(model="ada", input=TEXTS)
        body = {"model": "eddy-tiny", "query": "granite crystals", "documents": TEXTS, "top_n": 1}
        ranked = httpx.post(f"{root}/v1/rerank", json=body).json()["results"]
        assert httpx.get(f"{root}/health").status_code == 200
        server.should_exit = True
        thread.join(30)
    assert near([row.embedding for row in answer.data], tiny.encode_document(TEXTS))
    assert near(query.data[0].embedding, tiny.encode_query(QUESTION))
    assert answer.usage.total_tokens == sum(tiny.count_tokens(TEXTS))
    assert [(row["index"], 0 < row["relevance_score"] < 1) for row in ranked] == [(2, True)]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Give the standard output of a command that ends well, in this process."""

    def output(command: str, *arguments: object) -> str:
        (entry,) = entry_points(group="console_scripts", name=command)
        monkeypatch.setattr(sys, "argv", [command, *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            entry.load()()
        out, err = capsys.readouterr()
        assert not stop.value.code, out + err
        return " ".join(out.split())

    return output


def test_the_commands(tiny: Embedder, tmp_path: Path, run: Callable[..., str]) -> None:
    rows, library = tmp_path / "vectors.npy", tmp_path / "mine"
    run("eddy", "embed", *TEXTS, "--model", "eddy-tiny", "--method", "plain:exit=2", "--output", rows)
    assert near(np.load(rows), tiny.encode_document(TEXTS))
    listed = run("eddy", "methods")
    assert {"plain", "tp", "htp", "kv", "reba", "tempscale", "prompteol", "cot", "metaeol", "echo"} <= {*listed.split()}
    assert "plain:exit=0+sif" in run("eddy", "methods", "eddy-tiny")
    assert "eddy-tiny" in run("eddy", "models")
    (tmp_path / "ferry.md").write_text(FERRY, encoding="utf-8")
    run("eddy-demo", "ingest", tmp_path / "ferry.md", "--model", "eddy-tiny", "--library", library)
    assert OFFICE in run("eddy-demo", "ask", QUESTION, "--library", library)
