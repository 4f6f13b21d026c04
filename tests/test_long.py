"""Long documents: vectors of documents, passages and sentences, against the reference and against each other."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from tests import families
from tests.comparison import CORE, METHODS, TEXTS, change_arguments, change_result, embedder, loaded, sentences_of
from tests.reference.readout import filtered, sif, unit
from tests.reference.windows import Window, document_vector, passes, span_vector
from tests.selection import each_once, mostly_slow, turns
from tokenizers import Tokenizer as Fast
from tokenizers import models, normalizers
from transformers import PreTrainedTokenizerFast

from eddy_embed import Embedder, methods
from eddy_embed.encoding import planner, runner
from eddy_embed.encoding.document import Part, Passage, front
from eddy_embed.errors import IncompatibleMethods, InvalidParameter, TextTooLong
from eddy_embed.text.sequence import Window as EngineWindow
from eddy_embed.text.tokenizer import Tokenizer

TEXT = (
    "The river rose at night. By morning the bridge was gone! Who would carry the letters now? "
    "Nobody asked the miller.\n\nHe had a boat, as everyone knew, but no oars. Salt. "
    "It was Halvorsen who found them under the stairs of the chapel. An eddy turned behind the stone."
)
WINDOWED = [
    *("plain", "plain:pool=hybrid,exit=3", "plain:pool=weighted,exit=-2", "htp:k=2,range=1-5,exit=4,pool=all"),
    *("prompteol", "tp:range=1-4,placeholders=2", "tp:prompt=prompteol,range=2-5,exit=-1", "htp"),
    *("htp:range=1-4,exit=-1", "echo:preset=bare", 'metaeol:prompts="A: {text} is\\n{text} means:",exit=-2'),
    *("kv:layers=2-4", "kv:layers=3-6,bias=2,verb=Summarize,pool=last,exit=-2+tempscale:tau=0.7", "reba"),
    *('plain+tempscale:lengths="1:1,20:0.7,40:0.5"', "reba:k=3,pool=mean,exit=4"),
    "reba:pool=mean,piece=7+tempscale:tau=0.6",
]
WORDED = [m for m in WINDOWED if "prompteol" in m or m.startswith(("metaeol", "kv"))]
"""With a prompt around the text."""
SPANS = [m for m in WINDOWED if m not in WORDED and "hybrid" not in m and m != "reba"]
FEW = {"plain", "htp:range=1-4,exit=-1", "kv:layers=2-4", "reba:k=3,pool=mean,exit=4"}
"""One of each kind."""
THREE = ["llama", "qwen3", "gemma2"]
WINDOW = 64


def passes_of(e: Embedder, family: str, method: str, text: str) -> list[Window]:
    """The reference's passes over the engine's windows; `test_windows` shows what the engine's windows are like."""
    return passes_over(e._pipeline.planner.plan([text], "document")[0].windows, family, method, text)


def passes_over(
    jobs: list[EngineWindow], family: str, method: str, text: str, wording: str | None = None
) -> list[Window]:
    assert len(jobs) > 2
    sequences = [job.sequence for job in jobs]
    ranges = tuple((int(s.starts[s.text].min()), int(s.ends[s.text].max())) for s in sequences)
    return [*map(copy.copy, passes_in(ranges, family, method, text, wording))]


@cache
def passes_in(
    ranges: tuple[tuple[int, int], ...], family: str, method: str, text: str, wording: str | None
) -> list[Window]:
    options = {"sentences": sentences_of(text), "wording_of": wording}
    name, parameters = METHODS[method]
    return passes(name, parameters, *loaded(family), text, [*ranges], **options)


def worded(e: Embedder, family: str, method: str) -> np.ndarray:
    """The mean over wordings of the mean over windows, each of which weighs as many tokens as it counts.

    A blank before the closing quotation mark is the text's in the engine and the wording's in the reference, so the
    weights are the engine's own.
    """
    jobs = e._pipeline.planner.plan([TEXT], "document")[0].windows
    wordings: Any = METHODS[method][1].get("prompts") or [None]
    means = []
    # Wordings one behind the other, each from the text's beginning.
    first = [at for at, job in enumerate(jobs) if job.sequence.starts[job.counted[0]] <= 0]
    for wording, start, end in zip(wordings, first, [*first[1:], len(jobs)], strict=True):
        own = jobs[start:end]
        states = [window.state() for window in passes_over(own, family, method, TEXT, wording)]
        counts = [len(job.counted) for job in own]
        means.append(sum(n * state for n, state in zip(counts, states, strict=True)) / sum(counts))
    return unit(np.mean(means, axis=0))


def right(e: Embedder, family: str, method: str) -> np.ndarray:
    """The reference's vector of `TEXT` over the engine's windows."""
    return worded(e, family, method) if method in WORDED else document_vector(passes_of(e, family, method, TEXT))


@pytest.mark.parametrize(
    ("family", "method"), [*each_once(THREE, [m for m in WINDOWED if m not in WORDED]), *each_once(THREE, WORDED)]
)
def test_windowed_documents_equal_the_reference(family: str, method: str) -> None:
    e = embedder(family, method, max_length=WINDOW)
    assert np.abs(e.encode_document(TEXT) - right(e, family, method)).max() <= 1e-5


def _alike(planned: planner.TextPlan, *_: Any) -> planner.TextPlan:
    return replace(planned, windows=[replace(job, share=1 / len(planned.windows)) for job in planned.windows])


def _normalised(sums: Any, tokens: int, read: Any, rows: np.ndarray) -> tuple[Any, ...]:
    return sums, tokens, read, np.concatenate([rows[:1] / np.linalg.norm(rows[0]), rows[1:]])


@pytest.mark.parametrize("method", sorted(FEW))
def test_windows_that_weigh_the_same_or_are_normalised_first_are_noticed(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    e = embedder("llama", method, max_length=WINDOW)
    expected = right(e, "llama", method)
    faults = [(change_result, planner, "_shared", _alike)]
    faults += [(change_arguments, runner, "_add", _normalised)] if method in SPANS else []
    for put_in, *fault in faults:
        with monkeypatch.context() as patch:
            put_in(patch, *fault)
            assert np.abs(e.encode_document(TEXT) - expected).max() > 1e-5


@pytest.mark.parametrize(("method", "max_length"), [("plain", WINDOW), ("htp", WINDOW + 1), ("echo:preset=bare", 110)])
def test_a_border_elsewhere_is_noticed(method: str, max_length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    e = embedder("qwen3", method, max_length=max_length)
    jobs = e._pipeline.planner.plan([TEXT], "document")[0].windows
    assert any(len(job.counted) < len(job.sequence.text) for job in jobs), "windows overlap"
    expected = right(e, "qwen3", method)
    assert np.abs(e.encode_document(TEXT) - expected).max() <= 1e-5
    # All that two windows share counts in the first.
    monkeypatch.setattr(planner, "_border", lambda left, right, begin, end: end)
    assert np.abs(e.encode_document(TEXT) - expected).max() > 1e-5


@pytest.mark.parametrize(("family", "method", "max_length"), each_once(THREE, SPANS, [WINDOW, 1024]))
def test_spans_equal_the_reference(family: str, method: str, max_length: int) -> None:
    e = embedder(family, method, max_length=max_length)
    done = passes_of(e, family, method, TEXT) if max_length == WINDOW else read_alone(family, method, TEXT)
    document = e.encode_long(TEXT, passage_size=40, late=True)
    assert len(document.passages) > 2
    for span in [*document.sentences, *document.passages]:
        assert np.abs(span.vector - span_vector(done, (span.start, span.end))).max() <= 1e-5


LENGTHS = [160, 1024]


@pytest.mark.parametrize(
    ("method", "max_length"),
    mostly_slow(product([m for m in METHODS if methods.parse(m).can_embed_spans], LENGTHS), turns(CORE, LENGTHS)),
)
def test_a_long_documents_vector_is_that_of_encode_document(method: str, max_length: int) -> None:
    e, text = embedder("llama", method, max_length=max_length), f"{TEXT} {TEXT}"
    document = e.encode_long(text, late=True)
    assert np.array_equal(document.vector, e.encode_document(text))
    assert (document.n_windows > 1) == (max_length == 160)


@pytest.mark.parametrize(
    ("parts", "late", "method"),
    [
        *each_once([("document",), ("passages",), ("sentences",), ("document", "sentences")], [True, False], ["htp"]),
        *each_once([("document",), ("passages",), ("sentences",)], [False], ["prompteol"]),
    ],
)
def test_parts_that_are_not_wanted_are_left_out_and_cost_nothing(
    late: bool, parts: tuple[Part, ...], method: str
) -> None:
    e, every = (embedder("llama", method, max_length=WINDOW) for _ in range(2))
    before = e.counts.positions
    some = e.encode_long(TEXT, passage_size=40, late=late, parts=parts)
    ran = e.counts.positions - before
    whole = every.encode_long(TEXT, passage_size=40, late=late)
    for name in ("passages", "sentences"):
        mine, theirs = getattr(some, name), getattr(whole, name)
        assert len(mine) == (len(theirs) if name in parts else 0)
        for a, b in zip(mine, theirs, strict=False):
            assert (a.start, a.end, a.n_tokens) == (b.start, b.end, b.n_tokens)
            assert np.abs(a.vector - b.vector).max() <= 1e-6
    assert np.array_equal(some.vector, whole.vector if "document" in parts else np.zeros(0))
    planner = e._pipeline.planner.plan
    # The passages make all of the others, but the sentences of a method that reads one token.
    alone = whole.passages + (whole.sentences if method == "prompteol" and "sentences" in parts else [])
    wanted = [TEXT] if late else [TEXT[part.start : part.end] for part in alone]
    assert ran == sum(len(job.sequence) for planned in planner(wanted, "document") for job in planned.windows)


def test_values_that_cannot_be_are_refused() -> None:
    e = embedder("llama", "plain")
    for wrong, message in (
        *(({"parts": parts}, "one or more of document, passages, sentences") for parts in ((), "passages", ("pages",))),
        *(({"passage_size": size}, "passage_size=") for size in (0, -1)),
        ({"passage_unit": "words"}, "passage_unit='words' is unknown; choose one of tokens, sentences"),
    ):
        with pytest.raises(InvalidParameter, match=message):
            e.encode_long(TEXT, **wrong)


@pytest.mark.parametrize("late", [True, False])
def test_several_documents_come_in_order_and_each_as_if_alone(late: bool) -> None:
    e = embedder("llama", "htp", max_length=WINDOW)
    texts = [TEXT, "Salt.", TEXT[:150][::-1]]
    documents = e.encode_long((text for text in texts), late=late)
    for text, document in zip(texts, documents, strict=True):
        alone = e.encode_long(text, late=late)
        assert document.text == text
        assert np.abs(document.vector - alone.vector).max() <= 1e-5
        for span, other in zip(document.sentences, alone.sentences, strict=True):
            assert np.abs(span.vector - other.vector).max() <= 1e-5
    assert e.encode_long([]) == []


def read_alone(family: str, method: str, text: str) -> list[Window]:
    """The reference's only pass over a text."""
    return [*map(copy.copy, passes_in(((0, len(text)),), family, method, text, None))]


def mean_by_tokens(passages: list[Passage], raw: np.ndarray) -> np.ndarray:
    """The vector of a document out of its passages' pooled states, shape (passages, width)."""
    total, tokens = np.zeros(raw.shape[1]), 0
    for passage, state in zip(passages, raw, strict=True):
        total, tokens = total + passage.n_tokens * state, tokens + passage.n_tokens
    return unit(total / tokens)


ALONE = [*SPANS, "prompteol", "plain:pool=last", "plain:pool=hybrid,exit=3", "reba"]


@pytest.mark.parametrize(("family", "method"), each_once(THREE, ALONE))
def test_without_late_a_passage_is_a_text_of_its_own(family: str, method: str) -> None:
    e, raw = (embedder(family, method, normalize=normal) for normal in (True, False))
    document = e.encode_long(TEXT, passage_size=40, late=False)
    texts = [TEXT[passage.start : passage.end] for passage in document.passages]
    assert len(texts) > 2
    alone = e.encode_document(texts)
    assert np.abs(np.stack([passage.vector for passage in document.passages]) - alone).max() <= 1e-5
    assert [passage.n_tokens for passage in document.passages] == [e.explain(text).text_tokens for text in texts]
    whole = mean_by_tokens(document.passages, raw.encode_document(texts).astype(np.float64))
    assert np.abs(document.vector - whole).max() <= 1e-5
    for passage, text in zip(document.passages, texts, strict=True):
        for sentence in document.sentences[passage.first_sentence : passage.last_sentence + 1]:
            if e.can_embed_spans:
                inside = (sentence.start - passage.start, sentence.end - passage.start)
                expected = span_vector(read_alone(family, method, text), inside)
            else:
                expected = e.encode_document(TEXT[sentence.start : sentence.end])
            assert np.abs(sentence.vector - expected).max() <= 1e-5


@pytest.mark.parametrize("method", ["plain", "reba:k=3,pool=mean,exit=4"])  # htp divides a sentence anew
def test_a_passage_of_more_than_a_window_is_read_in_windows(method: str) -> None:
    e = embedder("llama", method, max_length=WINDOW)
    text = "Salt rose. " + f"{TEXT[:-1]}, {TEXT}".replace(". ", ", ").replace("! ", ", ").replace("? ", ", ")
    document = e.encode_long(text, passage_size=40, late=False)
    long = max(document.passages, key=lambda passage: passage.n_tokens)
    own = text[long.start : long.end]
    assert e.explain(own).windows > 1 and len(document.passages) > 1
    assert np.abs(long.vector - e.encode_document(own)).max() <= 1e-5
    read = passes_of(e, "llama", method, own)
    sentence = document.sentences[long.first_sentence]
    inside = (sentence.start - long.start, sentence.end - long.start)
    assert np.abs(sentence.vector - span_vector(read, inside)).max() <= 1e-5


DROPPED = "\u2042\u2042"
TITLED = "# Tides\n\nThe moon pulls the water.\n\n## Staffs\n\nPut a staff into the ground. Read it twice a day."
AHEAD = "Tides > Staffs\n"


@pytest.mark.parametrize(
    "method",
    [
        *("plain", "htp", "plain:pool=last", "prompteol", "reba:k=3,pool=mean,exit=4", "plain:pool=weighted,exit=-2"),
        *("plain:pool=hybrid,exit=3", "htp:k=2,range=1-5,exit=4,pool=all", "kv:layers=2-4"),
    ],
)
def test_a_passage_is_read_after_its_headings_which_are_in_no_mean(method: str) -> None:
    e = embedder("llama", method)
    document = e.encode_long(TITLED, passage_size=1, passage_unit="sentences", late=False)
    passage = document.passages[-1]
    own = TITLED[passage.start : passage.end]
    assert own == "Read it twice a day." and passage.headings == ("Tides", "Staffs")
    (read,) = read_alone("llama", method, AHEAD + own)
    read.counted = [index for index, (start, _) in enumerate(read.spans) if start >= len(AHEAD)]
    assert passage.n_tokens == len(read.counted) < len(read.spans)
    assert np.abs(passage.vector - unit(read.state())).max() <= 1e-5
    assert np.abs(passage.vector - e.encode_document(own)).max() > 1e-4
    if e.can_embed_spans:
        expected = span_vector([read], (len(AHEAD), len(AHEAD + own)))
    else:
        expected = e.encode_document(own)
    assert np.abs(document.sentences[-1].vector - expected).max() <= 1e-5


def test_headings_are_not_read_where_they_would_be_in_the_vector_or_cut_the_passage() -> None:
    half = embedder("llama", "reba:variant=released,pool=mean")
    short = embedder("llama", "plain", max_length=len(AHEAD.split()) + 8, overflow="truncate")
    for e in (half, short):
        passages = e.encode_long(TITLED, passage_size=1, passage_unit="sentences", late=False).passages
        for passage in passages:
            own = TITLED[passage.start : passage.end]
            assert passage.n_tokens == e.explain(own).text_tokens
            assert np.abs(passage.vector - e.encode_document(own)).max() <= 1e-5


def test_a_table_s_first_row_is_read_ahead_of_the_others() -> None:
    rows = "| Route | Adult |\n| Bay | 5.00 |\n| Night tour | 12.00 |"
    text = f"# Fares\n\n{rows}\n\n| Sold | at |\n| Bread | six |\n\nAsk the crew."
    document = embedder("llama", "plain").encode_long(text, passage_size=1, passage_unit="sentences", late=False)
    found = [(text[each.start : each.end], each.headings) for each in document.passages]
    assert found == [
        ("# Fares\n\n| Route | Adult |", ("Fares",)),
        ("| Bay | 5.00 |", ("Fares", "Route | Adult")),
        ("| Night tour | 12.00 |", ("Fares", "Route | Adult")),
        ("| Sold | at |", ("Fares",)),
        ("| Bread | six |", ("Fares", "Sold | at")),
        ("Ask the crew.", ("Fares",)),
    ]


def test_headings_read_ahead_are_few_and_not_read_by_embedding_models() -> None:
    assert front(["x" * 150, "y" * 60, "z" * 60]) == f"{'y' * 60} > {'z' * 60}\n"
    assert front(["x" * 201]) == front([]) == ""
    e = embedder("bert", "plain")
    passage = e.encode_long(TITLED, passage_size=1, passage_unit="sentences", late=False).passages[-1]
    alone = e.encode_document(TITLED[passage.start : passage.end])
    assert passage.headings and np.abs(passage.vector - alone).max() <= 1e-5


@pytest.mark.parametrize("filtered_out", [None, 3])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_document_weighs_its_passages_by_the_weights_of_their_tokens(family: str, filtered_out: int | None) -> None:
    model, tokenizer = loaded(family)
    e = embedder(family, "plain:exit=3+sif:a=0.01" + (f"+filter:drop={filtered_out}" if filtered_out else ""))
    document = e.encode_long(TEXT, passage_size=40, late=False)
    table, whole = model.get_input_embeddings().weight, np.zeros(families.HIDDEN)

    def finished(raw: np.ndarray) -> np.ndarray:
        return unit(raw if filtered_out is None else filtered(raw, table, filtered_out))

    for passage in document.passages:
        text = TEXT[passage.start : passage.end]
        (read,) = passes("plain", {"exit": 3}, model, tokenizer, text, [(0, len(text))], sentences=())
        own = np.zeros(families.HIDDEN)
        for at in read.done.layout.text:
            own = own + sif(tokenizer, read.done.layout.ids[at], 0.01) * read.done.h[at]
        assert np.abs(passage.vector - finished(own)).max() <= 1e-5
        whole = whole + own
    assert len(document.passages) > 2 and np.abs(document.vector - finished(whole)).max() <= 1e-5


def test_a_passage_without_tokens_has_the_documents_vector_and_no_part_in_it() -> None:
    model, tokenizer = loaded("qwen3")
    dropping = copy.deepcopy(tokenizer)
    dropping.backend_tokenizer.normalizer = normalizers.Replace(DROPPED, "")
    e, raw = (Embedder(model, "plain", tokenizer=dropping, normalize=normal) for normal in (True, False))
    text = f"The river rose.\n\n{DROPPED}\n\nSalt was dear."
    document = e.encode_long(text, passage_size=1, passage_unit="sentences", late=False)
    assert [passage.n_tokens > 0 for passage in document.passages] == [True, False, True]
    first, none, last = document.passages
    assert text[none.start : none.end] == DROPPED and np.array_equal(none.vector, document.vector)
    assert np.array_equal(document.sentences[1].vector, document.vector) and document.sentences[1].n_tokens == 0
    states = raw.encode_document(["The river rose.", "Salt was dear."]).astype(np.float64)
    assert np.abs(document.vector - mean_by_tokens([first, last], states)).max() <= 1e-5


def test_layers_read_passages_by_themselves_and_token_embeddings_need_not() -> None:
    for method, late in (
        *(("plain:exit=0", True), ("plain:exit=1", False), ("htp", False)),
        *(("prompteol", False), ("plain:pool=last", False)),
    ):
        e = embedder("llama", method)
        usual, asked = e.encode_long(TEXT, passage_size=40), e.encode_long(TEXT, passage_size=40, late=late)
        assert e.reads_late is late and len(usual.passages) > 2, method
        pairs = [(usual, asked), *zip(usual.passages + usual.sentences, asked.passages + asked.sentences, strict=True)]
        assert all(np.array_equal(one.vector, other.vector) for one, other in pairs), method


def test_methods_that_read_one_token_have_no_spans() -> None:
    for method in ("prompteol", "tp:prompt=prompteol", "plain:pool=last", "plain:pool=hybrid"):
        with pytest.raises(IncompatibleMethods, match="late=False"):
            embedder("llama", method).encode_long(TEXT, late=True)


def test_overflow_error_names_the_text_and_the_excess() -> None:
    e = embedder("llama", "htp", max_length=WINDOW, overflow="error")
    length = e.explain("Salt.").sequence_tokens
    assert e.encode_document("Salt.").shape == (families.HIDDEN,) and length < WINDOW
    with pytest.raises(TextTooLong, match=r"text 1 .* takes (\d+) tokens, (\d+) more than max_length=64"):
        e.encode_document(["Salt.", TEXT])
    for overflow in ("window", "truncate"):
        with pytest.raises(TextTooLong, match=r"max_length=12 leaves no room .* raise max_length"):
            embedder("llama", "prompteol", max_length=12, overflow=overflow).encode_document(TEXT)


@pytest.mark.parametrize("method", ["plain", "tp", "htp", "prompteol"])
def test_truncation_keeps_what_fits_and_counts_the_rest(method: str) -> None:
    e = embedder("llama", method, max_length=WINDOW, overflow="truncate")
    vector = e.encode_document(TEXT)
    counts = e.counts
    assert (counts.texts, counts.truncated_texts, counts.windows, counts.windowed_texts) == (1, 1, 1, 0)
    explained = e.explain(TEXT)
    assert explained.sequence_tokens <= WINDOW and explained.truncated == counts.truncated_tokens > 0
    end = max(token.end for token in explained.tokens)
    kept = embedder("llama", method)
    assert np.abs(kept.encode_document(TEXT[:end]) - vector).max() <= 1e-5
    assert kept.explain(TEXT[:end]).text_tokens == counts.tokens - counts.truncated_tokens
    longer = next(TEXT[:at] for at in range(end + 1, len(TEXT)) if TEXT[at - 1].isalnum())
    assert kept.explain(longer).sequence_tokens > WINDOW - 3, "another word would have fitted"


def test_truncated_long_documents_say_so() -> None:
    e = embedder("llama", "htp", max_length=WINDOW, overflow="truncate")
    late, alone = (e.encode_long(TEXT, passage_size=30, late=late) for late in (True, False))
    for document in (late, alone):
        assert document.n_truncated > 0 and document.n_windows == 1
        end = max(sentence.end for sentence in document.sentences)
        assert end < len(TEXT)
        assert document.passages[-1].end == end
    assert np.array_equal(late.vector, e.encode_document(TEXT))
    texts = [TEXT[passage.start : passage.end] for passage in alone.passages]
    assert np.abs(np.stack([passage.vector for passage in alone.passages]) - e.encode_document(texts)).max() <= 1e-5


def test_a_document_shows_itself_in_a_line_and_in_a_notebook() -> None:
    document = embedder("llama", "plain", max_length=WINDOW).encode_long(TEXT + "<b>", passage_size=24)
    assert f"passages: {len(document.passages)}" in repr(document) and len(repr(document)) < 200
    page = document._repr_html_()
    assert "The river rose at night." in page and "<b>" not in page


# --- weights of tokens by how rare they are, and directions of a vocabulary that are taken out

A = 1e-2
"""For vocabularies of a few hundred tokens, where the default would weigh all but a few the same."""


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_windows_and_their_parts_equal_the_reference(family: str) -> None:
    """A document is the weighted mean over all of its windows' tokens, whatever weight each window has."""
    _, tokenizer = loaded(family)
    e = embedder(family, f"plain+sif:a={A}", max_length=WINDOW)
    windows = passes_of(e, family, "plain", TEXT)
    states = [
        (window.spans[index], sif(tokenizer, window.done.layout.ids[at], A), window.done.h[at])
        for window in windows
        for index in window.counted
        for at in [window.done.layout.text[index]]
    ]
    whole = e.encode_long(TEXT, passage_size=20, late=True)
    assert np.abs(whole.vector - unit(sum(weight * h for _, weight, h in states))).max() <= 1e-5
    assert np.abs(whole.vector - e.encode_document(TEXT)).max() <= 1e-6
    for part in [*whole.sentences, *whole.passages]:
        inside = [weight * h for (start, _), weight, h in states if part.start <= start < part.end]
        assert np.abs(part.vector - unit(sum(inside))).max() <= 1e-5
        assert part.n_tokens == len(inside)
    ends = (whole.sentences[0], whole.sentences[-1])  # words beyond the window are read where they stand
    words = e.encode_words(TEXT, [(sentence.start, sentence.end) for sentence in ends])
    assert np.abs(words - [sentence.vector for sentence in ends]).max() <= 1e-6


def test_explain_shows_the_weights() -> None:
    _, tokenizer = loaded("llama")
    tokens = embedder("llama", f"plain+sif:a={A}").explain(TEXTS[0]).tokens
    own = [token for token in tokens if token.weight]
    expected = np.array([sif(tokenizer, token.id, A) for token in own])
    assert [token.weight for token in own] == pytest.approx((expected / expected.sum()).tolist())


def ranks(vocabulary: dict[str, int], unknown: str) -> np.ndarray:
    fast = Fast(models.WordLevel(vocabulary, unk_token=unknown))
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=fast)).ranks()


def test_ids_with_gaps_and_common_characters_behind_a_vocabulary_have_ranks() -> None:
    gapped = ranks({"a": 0, "tide": 3, "rises": 40, "[UNK]": 7}, "[UNK]")
    assert (len(gapped), gapped[40], gapped[0]) == (41, 40, 0)
    # As SentencePiece orders it: pieces first, then characters, the most common ones first.
    words = {"<unk>": 0, **{f"▁word{number}": number for number in range(1, 900)}, "の": 900, "は": 901, "鬱": 999}
    assert ranks(words, "<unk>")[[900, 901, 999, 899]].tolist() == [0, 1, 2, 899]


def test_weights_without_a_mean_and_directions_that_are_not_there_are_refused() -> None:
    for method, message in {
        "plain:pool=last+sif": "pool=last is none",
        "prompteol+sif": "leave sif",
        "plain:pool=hybrid+sif": "pool=hybrid",
        "plain+sif:a=0": "a=0 must be a number above 0",
        "plain+filter:drop=0": "at least 1",
        "plain+filter:drop=64": "below the vectors' width of 64",
    }.items():
        with pytest.raises(InvalidParameter, match=message):
            embedder("llama", method)


# --- directions taken out

LONG = " ".join(TEXTS[:3])


def test_every_part_of_a_document_is_filtered() -> None:
    model, _ = loaded("llama")
    raw, e = embedder("llama", "plain", normalize=False), embedder("llama", "plain+filter:drop=4")
    before, after = raw.encode_long(LONG, passage_size=20), e.encode_long(LONG, passage_size=20)
    table = model.get_input_embeddings().weight
    for old, new in zip(before.passages + before.sentences, after.passages + after.sentences, strict=True):
        assert np.abs(new.vector - unit(filtered(old.vector, table, 4))).max() < 1e-5
    assert e.dimension == raw.dimension and e.fingerprint != embedder("llama", "plain+filter:drop=5").fingerprint
