"""What methods put into attention, ReBA, turned keys, temperatures: exact beside every kernel, and faults noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests import families
from tests.comparison import TEXTS, change_arguments, change_result, embedder, exact, gap, loaded, sentences_of
from tests.reference import backward
from tests.reference import methods as reference
from tests.reference.double import AllDouble, double
from tests.reference.readout import unit
from tests.selection import each_once, mostly_slow, slow
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, CohereConfig, LlamaConfig

from eddy_embed import Embedder, methods
from eddy_embed.errors import (
    IncompatibleMethods,
    InterventionDidNotRun,
    InvalidParameter,
    InvalidText,
    UnsupportedModel,
)
from eddy_embed.methods.method import Method
from eddy_embed.model import hooks
from eddy_embed.model.attention import kernels, watcher
from eddy_embed.model.attention.blocked import AttentionSpec
from eddy_embed.model.attention.kernels import Angles
from eddy_embed.model.attention.watcher import AttentionRecorder, _Rectangles
from eddy_embed.model.products import pad_rows
from eddy_embed.parts.attention import ExtraKeyValues, Temperature
from eddy_embed.parts.layout import Layout, Repetition, TextRole

ALL = [*families.FAMILIES, *families.MORE_FAMILIES]
DEFAULTS = reference.settings("reba", {})


@pytest.mark.parametrize("family", mostly_slow(ALL, families.FAMILIES))
def test_one_copy_read_last_is_plain(family: str) -> None:
    once = embedder(family, "reba:k=1").encode_document(TEXTS)
    assert np.abs(once - embedder(family, "plain:pool=last").encode_document(TEXTS)).max() <= 1e-6
    assert np.abs(once - embedder(family, "reba").encode_document(TEXTS)).max() > 1e-3


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt_oss"])
def test_a_rerouted_entry_is_in_the_softmax_and_not_watched(family: str) -> None:
    model, tokenizer = loaded(family, exactly=True)
    method = methods.reba(pool="mean") | Method(reroute=ExtraKeyValues((2, 4), bias=3.0, entries=2))
    e = Embedder(model, tokenizer=tokenizer, method=method)
    p = DEFAULTS | {"pool": "mean"}
    texts = TEXTS[::3]
    for text, vector in zip(texts, exact(e, texts), strict=True):
        layout, states = backward.embeddings(model, tokenizer, text, p, None, reroute=((2, 4), 3.0, 2, False))
        assert np.abs(vector - unit(states[layout.text].mean(0))).max() <= 1e-9
    without = embedder(family, "reba:pool=mean", exactly=True)
    assert np.abs(exact(without, texts) - exact(e, texts)).max() > 1e-3


def test_released_truncation_cuts_the_repeated_text() -> None:
    model, tokenizer = loaded("llama", exactly=True)
    for pool, max_length, lost in (("last", 60, False), ("mean", 60, False), ("last", 30, True), ("mean", 30, True)):
        options = {"max_length": max_length, "overflow": "truncate"}
        e = embedder("llama", f"reba:pool={pool},variant=released", exactly=True, **options)
        p = DEFAULTS | {"pool": pool, "variant": "released"}
        _, raw = backward.released(model, tokenizer, TEXTS[0], p, None, max_length=max_length)
        assert np.abs(exact(e, TEXTS[:1])[0] - unit(raw)).max() <= 1e-9, (pool, max_length)
        shown = e.explain(TEXTS[0])
        assert shown.sequence_tokens == max_length and (shown.truncated > 0) is lost
        # The paper's variant cuts the text, and both copies alike.
        paper = embedder("llama", f"reba:pool={pool}", **options).explain(TEXTS[0])
        assert paper.truncated > shown.truncated and paper.sequence_tokens <= max_length


# --- words


WORDS = [{}, {"pool": "mean", "k": 3}, {"piece": 6}, {"joiner": "\n"}]
RELEASED = [("llama", {"variant": "released", "pool": pool}) for pool in ("last", "mean")]


@pytest.mark.parametrize(
    ("family", "parameters"),
    mostly_slow(
        [*((family, parameters) for family in ("llama", "gpt2", "gemma2") for parameters in WORDS), *RELEASED],
        [("gpt2", WORDS[1]), ("gemma2", WORDS[2]), RELEASED[0]],
    ),
)
def test_words_equal_the_reference(family: str, parameters: dict[str, Any]) -> None:
    text = TEXTS[2]
    spans = [(text.index(word), text.index(word) + len(word)) for word in ("eddy", "runs back", "smoke", "An", "Trout")]
    spans += [(4, 24), (0, len(text))]
    model, tokenizer = loaded(family, exactly=True)
    e = Embedder(model, tokenizer=tokenizer, method=methods.reba(**parameters), normalize=False)
    with AllDouble():
        vectors = e.encode_words(text, spans)
    for vector, span in zip(vectors, spans, strict=True):
        expected = backward.word(model, tokenizer, text, span, DEFAULTS | parameters)
        assert np.abs(vector - expected).max() <= 1e-6 * np.abs(expected).max()


def test_all_words_make_the_text() -> None:
    for method in ("plain", "htp:range=1-4", "echo", "reba:pool=mean", "tp:prompt=echo"):
        e = embedder("llama", method, normalize=False)
        text = "Salt and smoke"
        whole = e.encode_words(text, [(0, len(text))])[0]
        assert np.abs(whole - e.encode_document(text)).max() <= 1e-6 * np.abs(whole).max(), method
        words = e.encode_words(text, [(9, 14), (0, 4), (0, 8)])
        assert words.shape == (3, families.HIDDEN) and words.dtype == np.float32
        assert np.array_equal(words[1], e.encode_words(text, [(0, 4)])[0]), method
        several = e.encode_words([text, "Oars", text], [[(0, 4)], [], [(9, 14)]])
        assert np.abs(several[0] - words[1]).max() <= 1e-5 and np.abs(several[2] - words[0]).max() <= 1e-5
        assert e.encode_words(text, []).shape == several[1].shape == (0, families.HIDDEN)


def test_spans_that_hold_no_word_are_refused() -> None:
    e = embedder("llama", "plain", max_length=20, overflow="truncate")
    for bad in ((3, 3), (-1, 2), (4, 6), (2, 3)):
        with pytest.raises(InvalidParameter, match=rf"span 1, \({bad[0]}, {bad[1]}\), holds no word of a text of 5"):
            e.encode_words("Ab cd", [(0, 2), bad])
    with pytest.raises(InvalidParameter, match=r"span 1, \(70, 80\), has no token .* the last \d+ tokens are cut"):
        e.encode_words(TEXTS[0], [(0, 3), (70, 80)])
    with pytest.raises(InvalidText):
        e.encode_words(" ", [(0, 1)])


# --- what is refused


def test_what_it_does_not_go_with() -> None:
    for wrong in ({"template": "A: {text}"}, {"placeholders": 1}, {"end": True}, {"query_template": "{text}?"}):
        with pytest.raises(InvalidParameter, match="a repeated text stands alone"):
            Layout(repetition=Repetition(2), **wrong)
    with pytest.raises(InvalidParameter, match="exit=0 is below the first layer"):
        embedder("llama", "reba:exit=0")
    e = embedder("llama", "reba")
    with pytest.raises(IncompatibleMethods, match="gives no vectors for parts of a text"):
        e.encode_long(TEXTS[0], late=True)
    with pytest.raises(InvalidParameter, match="out of one pass"):
        e._pipeline.open_runner.at_layers((5, 6))
    for method in ("prompteol", "plain:pool=hybrid"):
        with pytest.raises(IncompatibleMethods, match="no vectors for words"):
            embedder("llama", method).encode_words("Ab cd", [(0, 2)])


# --- memory


class Largest(TorchDispatchMode):
    """Notes the number of elements of the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for made in out if isinstance(out, list | tuple) else [out]:
            if isinstance(made, torch.Tensor):
                self.elements = max(self.elements, made.numel())
        return out


def largest(method: str, words: int) -> tuple[int, int]:
    """Tokens run for a text of so many words, and the elements of the largest tensor made."""
    e = embedder("llama", method)
    text = "salt " * words
    with Largest() as noted:
        e.encode_document(text)
    return e.explain(text).sequence_tokens, noted.elements


def test_the_last_token_takes_one_column_of_each_layer() -> None:
    tokens, most = largest("reba", 150)
    assert 700 < tokens <= families.WINDOW
    # The model's own projections are the largest tensors of a pass, with the watch and without it.
    plainly, widest = largest("plain", 300)
    rows, others = (pad_rows(count, torch.device("cpu")) for count in (tokens, plainly))
    assert most / rows == widest / others and most < tokens**2 / 4
    shorter, less = largest("reba", 75)
    assert most / less < 1.1 * tokens / shorter


def test_the_mean_holds_one_matrix_and_no_layers_or_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eddy_embed.model.attention.watcher.CACHED", 2**14)
    tokens, most = largest("reba:pool=mean", 150)
    assert 700 < tokens <= families.WINDOW
    # Rows of both copies, columns of the first.
    assert most == (tokens - 1) * (tokens - 1) // 2


@pytest.mark.parametrize("family", ["gemma2", slow("llama")])
def test_blocks_of_rows_change_nothing(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eddy_embed.model.attention.watcher.CACHED", 700)
    for method in ("reba:pool=mean,piece=7+tempscale:tau=0.6", "reba:k=3,pool=mean,exit=4"):
        assert gap(embedder(family, method, exactly=True), family, method, TEXTS) <= 1e-9


# --- faults


def _one_head(patch: pytest.MonkeyPatch) -> None:
    record = _Rectangles.record

    def mutated(*states: Any) -> None:
        with patch.context() as inside:
            inside.setattr(torch.Tensor, "amax", lambda scores, dim: scores.select(dim, 0))
            record(*states)

    patch.setattr(_Rectangles, "record", mutated)


def _last_layer(patch: pytest.MonkeyPatch) -> None:
    def forgetting(rectangles: _Rectangles, *states: Any) -> Any:
        rectangles.largest = None
        return (rectangles, *states)

    change_arguments(patch, _Rectangles, "record", forgetting)


def _weights(patch: pytest.MonkeyPatch, change: Callable[..., Any]) -> None:
    change_result(patch, AttentionRecorder, "weights", lambda found, *_, **__: change(*found))


def _with_bos(patch: pytest.MonkeyPatch) -> None:
    def one_row_more(recorder: AttentionRecorder, *_: Any) -> AttentionRecorder:
        recorder.first_rows -= 1
        return recorder

    change_result(patch, watcher.Refiner, "recorder", one_row_more)
    _weights(patch, lambda first, weights: (first, torch.cat([weights[1:2], weights[1:]])))


def _column_off(patch: pytest.MonkeyPatch) -> None:
    change_arguments(
        patch, watcher.Refiner, "recorder", lambda refiner, spans: (refiner, [(a - 1, b - 1) for a, b in spans])
    )


MUTATIONS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "none": lambda patch: None,
    "one head": _one_head,
    "one layer": _last_layer,
    "half missing off the diagonal": lambda patch: _weights(
        patch, lambda first, weights: (first, 2 * weights - torch.eye(*weights.shape) * weights)
    ),
    "states off by one": lambda patch: _weights(patch, lambda first, weights: (first - 1, weights)),
    "columns off by one": _column_off,
    "diagonal left out": lambda patch: _weights(patch, lambda first, weights: (first, weights.tril(-1))),
    "begin token weighed": _with_bos,
}


@pytest.mark.parametrize(("method", "name"), each_once(["reba", "reba:k=3,pool=mean,exit=4"], MUTATIONS))
def test_mutation_is_noticed(name: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    e = embedder("llama", method, exactly=True)
    MUTATIONS[name](monkeypatch)
    assert (gap(e, "llama", method, TEXTS) > 1e-5) is (name != "none")


def test_a_layer_that_is_not_watched_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    e = embedder("llama", "reba")
    monkeypatch.setattr(AttentionRecorder, "begin", lambda self, groups, offsets: None)
    host = e._pipeline.open_runner.host
    monkeypatch.setattr(host, "kept", host.kept + 1)
    with pytest.raises((InterventionDidNotRun, IndexError)):
        e.encode_document("Salt.")


# --- kv:rebase: keys turned to positions -1, -2 .. exactly, whatever the rotary embedding; refused without one

ROTARY = ["llama", "qwen3", "gemma2", "mistral", "qwen2", "gemma3", "phi3", "gpt_neox", "olmo2", "phi"]
ORIGINAL = "original_max_position_embeddings"
SCALED: dict[str, dict[str, Any]] = {
    "linear": {"factor": 3.0},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, ORIGINAL: 64},
    "yarn": {"factor": 4.0, ORIGINAL: 64},
    "longrope": {
        **{"factor": 2.0, ORIGINAL: 512},
        **{"short_factor": [1.0 + at / 8 for at in range(8)], "long_factor": [2.0 + at for at in range(8)]},
    },
}
REBASED_PARAMETERS = {"layers": (2, 3, 4), "n": 2, "rebase": True}
REBASED = "kv:layers=2-4,n=2,rebase=true"


def built(config: Any, tokenizer: str) -> tuple[Any, Any]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return AutoModelForCausalLM.from_config(config).eval(), families.TOKENIZERS[tokenizer]()


def scaled(kind: str) -> tuple[Any, Any]:
    angles = {"rope_type": kind, "rope_theta": 1e4, **SCALED[kind]}
    return built(LlamaConfig(**families._shape(rope_parameters=angles)), "metaspace")


def difference(e: Embedder, model: Any, tokenizer: Any) -> float:
    expected = [
        reference.embed("kv", REBASED_PARAMETERS, model, tokenizer, text, sentences=sentences_of(text), role="query")
        for text in TEXTS
    ]
    return float(np.abs(exact(e, TEXTS, "query") - np.stack(expected)).max())


@pytest.mark.parametrize("family", mostly_slow(ROTARY, ["llama", "gemma3", "gpt_neox", "phi3"]))
def test_turned_keys_equal_the_reference(family: str) -> None:
    e = embedder(family, REBASED, exactly=True)
    assert difference(e, *loaded(family)) <= 1e-9
    together = exact(e, TEXTS, "query")
    assert np.abs(together - np.stack([exact(e, [text], "query")[0] for text in TEXTS])).max() <= 1e-12
    where_they_stand = embedder(family, REBASED.replace(",rebase=true", ""), exactly=True)
    assert np.abs(exact(where_they_stand, TEXTS, "query") - together).max() > 1e-5


@pytest.mark.parametrize("kind", SCALED)
def test_scaled_angles_equal_the_reference(kind: str) -> None:
    model, tokenizer = scaled(kind)
    e = Embedder(double(model), tokenizer=tokenizer, method=REBASED)
    assert difference(e, model, tokenizer) <= 1e-9


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_position_off_by_one_is_noticed(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(angles: Angles, *more: torch.Tensor) -> Any:
        # -1 and -2 become 0 and -1.
        cos, sin = (
            torch.cat(pair) for pair in ((angles.cos[:1], angles.back_cos[:-1]), (angles.sin[:1], angles.back_sin[:-1]))
        )
        return (replace(angles, back_cos=cos, back_sin=sin), *more)

    e = embedder(family, REBASED, exactly=True)
    change_arguments(monkeypatch, Angles, "rebased", shifted)
    assert difference(e, *loaded(family)) > 1e-5
    with pytest.raises(UnsupportedModel, match="keys of layer 2"):
        embedder(family, REBASED)


@pytest.mark.parametrize("kind", [0, 1])
def test_angles_of_another_kind_of_layer_are_noticed(kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Gemma 3 turns by smaller angles in layers without a window; 2 and 4 have one, 3 has none.
    e, right = embedder("gemma3", REBASED, exactly=True), hooks._given
    other = lambda call, _: right(call, (call.computed_angles[kind].cos,)) if call.computed_angles else None  # noqa: E731
    monkeypatch.setattr(hooks, "_given", other)
    assert difference(e, *loaded("gemma3")) > 1e-5


@pytest.mark.parametrize("family", ["gpt2", "opt"])
def test_learned_positions_are_refused_with_the_reason(family: str) -> None:
    with pytest.raises(UnsupportedModel, match=r"no rotary positions.*leave rebase out"):
        embedder(family, REBASED)
    assert embedder("gpt2", 'kv:layers="",rebase=true').encode_document("Salt.").shape == (families.HIDDEN,)


def test_other_ways_of_turning_are_refused() -> None:
    model, tokenizer = built(CohereConfig(**families._shape()), "byte-level")
    with pytest.raises(UnsupportedModel, match="not turned by their position in the usual way"):
        Embedder(model, tokenizer=tokenizer, method=REBASED)
    # Of SmolLM3's layers some know no positions; GPT-OSS gives each angle once.
    for family in ("smollm3", "gpt_oss"):
        with pytest.raises(UnsupportedModel, match="keys of layer 2 are not turned"):
            embedder(family, REBASED)


# --- tempscale: neutral at 1, one temperature a role, and applied behind the cap


@pytest.mark.parametrize("neutral", ["tempscale:tau=1", "tempscale:rule=rate,rate=0"])
@pytest.mark.parametrize("family", mostly_slow(ALL, families.FAMILIES))
def test_neutral_settings_change_nothing(family: str, neutral: str) -> None:
    assert np.array_equal(
        embedder(family, f"htp+{neutral}").encode_document(TEXTS), embedder(family, "htp").encode_document(TEXTS)
    )


def test_queries_may_have_their_own() -> None:
    both = embedder("llama", "plain+tempscale:tau=0.9,query_tau=0.5")
    assert np.array_equal(
        both.encode_document(TEXTS), embedder("llama", "plain+tempscale:tau=0.9").encode_document(TEXTS)
    )
    assert np.array_equal(both.encode_query(TEXTS), embedder("llama", "plain+tempscale:tau=0.5").encode_query(TEXTS))


def test_one_token_has_nothing_to_sharpen() -> None:
    # The logarithm of 1 is 0: equal logits, and a softmax over one of them is 1 all the same.
    (one, two), method = ("a", "salt"), "plain+start:token=none+tempscale:rule=log"
    log, plain = embedder("qwen3", method), embedder("qwen3", "plain+start:token=none")
    assert len(log.explain(one).tokens) == 1 < len(log.explain(two).tokens)
    assert np.array_equal(log.encode_document(one), plain.encode_document(one))
    assert np.abs(log.encode_document(two) - plain.encode_document(two)).max() > 1e-4


@pytest.mark.parametrize(
    ("method", "role", "factor"),
    [
        ("tempscale:query_tau=0.5", "query", 1 / 0.5),
        ('tempscale:lengths="1:1,25:0.7,26:0.5"', "document", 1 / 0.7),
        ("tempscale:rule=log,tau=0.5", "document", np.log(25) / 0.5),
    ],
)
def test_the_effective_factor_is_explained(method: str, role: TextRole, factor: float) -> None:
    # 22 tokens of text behind <s>, and two placeholders.
    e = embedder("llama", f"tp:placeholders=2+{method}")
    explained = e.explain("aaaaaaaaaaaaaaaaaaaaaa", role=role)
    assert len(explained.tokens) == 25 and explained.logits == pytest.approx(factor)


def _in_front_of_the_cap(patch: pytest.MonkeyPatch) -> None:
    def moved(query: Any, key: Any, value: Any, traits: AttentionSpec, factor: float, *more: Any) -> Any:
        return (query, key, value, replace(traits, scale=traits.scale * factor), 1.0, *more)

    change_arguments(patch, kernels, "blocked", moved)


def _forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Temperature, "factor", lambda self, length, query: 1.0)


@pytest.mark.parametrize(
    ("family", "mutate"), [("llama", _forgotten), ("gemma2", _forgotten), ("gemma2", _in_front_of_the_cap)]
)
def test_a_wrong_temperature_is_noticed(family: str, mutate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    method = "plain+tempscale"  # which equals the reference without them: `test_methods`
    assert gap(embedder(family, method, exactly=True), family, method, TEXTS) > 1e-4
