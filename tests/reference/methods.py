"""Each method from text to unit vector."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from . import backward
from . import layout as lay
from .blocks import ENCODERS
from .forward import copied, exit_layer, forward
from .readout import POOLINGS, filtered, sif, standardised, unit, weighed
from .revised import by_sentence, quoted
from .values import value

Params = Mapping[str, Any]
DEFAULTS: dict[str, dict[str, Any]] = {
    "plain": {"pool": "mean", "exit": -1},
    "prompteol": {"exit": -1},
    "cot": {"exit": -1},
    "knowledge": {"exit": -1},
    "metaeol": {"prompts": (), "exit": -1},
    "kv": {"layers": (), "bias": 1.0, "n": 1, "verb": "Compress", "pool": "hybrid", "exit": -1},
    "echo": {"preset": "rewrite", "exit": -1, "k": 2},
    "reba": {"k": 2, "joiner": None, "pool": "last", "variant": "paper", "piece": None, "exit": -1}
    | {"last_layer_only": False},
    "tp": {"prompt": "plain", "range": None, "exit": -2, "placeholders": 1, "source": "last", "init": "scaled"},
    "htp": {
        **{"k": 1, "range": None, "exit": -2, "pool": "mean", "local_only": False, "global_only": False},
        **{"every": None, "source": "end"},
    },
}
LAYERS = {"averaged": 1, "apart": ()}
"""How many layers are averaged before pooling, with any method; lower layers that are pooled too, each by itself."""
STANDARDISED = {"standardise": None}
"""Passages and questions, each a single sentence, whose mean and deviation are taken out of vectors of any method."""
REVISED = {"released_text": False}
"""The text as the released code of a method rewrites it."""
TEMPERATURE = {"tau": 1.0, "query_tau": None, "lengths": (), "rule": "fixed", "rate": 0.0}
"""TempScale, with any method."""
JOINED = {
    "prompt": None,
    "prompts": (),
    "verb": "Compress",
    "layers": (),
    "bias": 1.0,
    "n": 1,
    "rebase": False,
    "read": None,
    "specials": False,
    "trained": False,
    "start": True,
    "sif": None,
    "filter": None,
}
"""KV-Embedding's prompt or entries with any method; `read`: (pooling, whether the prompt is averaged too), if named;
`specials`: whether these are; `trained`: a fine-tuned embedder, with the specials behind the text, and an instruction
without a blank of ours; `start`: whether a start token is put where the tokenizer puts none;
`sif`: the a of weights by rarity. `filter`: directions of the token embeddings taken out."""
TEMPLATES = {"plain": lay.PLAIN, "prompteol": lay.PROMPTEOL, "cot": lay.COT, "knowledge": lay.KNOWLEDGE}
LAST = ("prompteol", "cot", "knowledge", "metaeol")


def default_range(layers: int) -> tuple[int, int]:
    return 1, min(7, max(2, layers // 4))


def settings(method: str, params: Params) -> dict[str, Any]:
    unknown = (
        set(params) - set(DEFAULTS[method]) - set(TEMPERATURE) - set(JOINED) - set(LAYERS | REVISED | STANDARDISED)
    )
    if unknown:
        raise ValueError(f"{method} has no {sorted(unknown)}")
    return REVISED | JOINED | DEFAULTS[method] | dict(params)


def temperature(p: Params, tokens: int, role: str) -> float:
    """Divisor of the logits of a sequence of so many tokens; the comparison rows multiply instead."""
    rule = p.get("rule", "fixed")
    if rule == "rate":
        return 1 / (1 + p["rate"] * math.log(tokens))
    tau = p.get("tau", 1.0)
    for first, below in p.get("lengths", ()):  # from `first` tokens on; the last that is reached counts
        tau = below if tokens >= first else tau
    tau = (p.get("query_tau") or tau) if role == "query" else tau
    return tau / math.log(tokens) if rule == "log" else tau


def _arranged(method: str, p: Params, filled: lay.Filled, sentences: Sequence[lay.Span] | None) -> lay.Layout:
    if method == "tp":
        return lay.token_prepending(filled, p["placeholders"], p["source"])
    if method == "htp":
        if sentences is None:
            raise ValueError("htp needs the character spans of the sentences")
        options = {"local": not p["global_only"], "whole": not p["local_only"], "source": p["source"]}
        if p["every"] is not None:
            tokens = sum(token.owner == "text" for token in filled.tokens)
            n = max(1, tokens // len(sentences)) if p["every"] == "auto" else p["every"]
            return lay.every(filled, n, **options)
        return lay.hierarchical(filled, lay.blocks_of(sentences, p["k"]), **options)
    return lay.plain(filled)


def starts(p: Params) -> bool:
    """Whether a start token is put where the tokenizer puts none: not as released code runs, and not by an embedder."""
    return bool(p["start"] and not p["trained"] and not p["released_text"] and p.get("preset") != "released")


def layout(
    method: str,
    params: Params,
    tokenizer: Any,
    text: str,
    *,
    role: str = "document",
    instruction: str | None = None,
    sentences: Sequence[lay.Span] | None = None,
    max_length: int | None = None,
    wording_of: str | None = None,
) -> lay.Layout:
    """The sequence of a text: with `max_length`, the one that keeps the most of the text's tokens."""
    p = settings(method, params)
    wording = p["prompt"] or method
    if wording == "echo":
        before, between, after = lay.ECHO[p.get("preset", "rewrite")][0 if role == "query" else 1].split("{text}")
        template = between.join([before + "{text}", *["{text}"] * (p.get("k", 2) - 1)]) + after
    elif wording == "kv":
        kind = "Query" if role == "query" else "Context"
        asked = {"Extract key concept": "Extract key concept"}.get(p["verb"], f"{p['verb']} the {kind} in one word")
        template = f'"{kind}: {{text}}" {asked}:'
    else:
        template = wording_of or TEMPLATES.get(wording, wording if "{text}" in wording else lay.PLAIN)
    if p["released_text"] and method == "htp":
        text, sentences = by_sentence(text, sentences or [])
    elif p["released_text"]:
        text = quoted(text)
        text = text.lstrip() if template == lay.PLAIN and not instruction else text
    whole = lay.fill(tokenizer, template, text, instruction, "" if p["trained"] else " ", starts(p))
    for keep in range(sum(token.owner == "text" for token in whole.tokens), 0, -1):
        kept = lay.shortened(whole, keep)
        if p["trained"]:
            kept.tokens.extend(lay.Token(i, owner="special") for i in lay.behind(tokenizer))
        elif method == "htp" and p["source"] == "released" and kept.tokens[-1].owner == "text":
            kept.tokens.append(lay.Token(tokenizer.eos_token_id, owner="special"))
        arranged = _arranged(method, p, kept, sentences)
        if max_length is None or len(arranged) <= max_length:
            return arranged
    raise ValueError(f"no token of the text fits into {max_length}")


@dataclass
class Run:
    """What a forward pass leaves: the layout, the states at the exit and the span that is pooled.

    With weights, if any, and the states of the lower layers that are pooled too.
    """

    layout: lay.Layout
    h: np.ndarray
    pooled: list[int]
    pool: str
    weights: dict[int, float] | None = None
    lower: Sequence[np.ndarray] = ()

    def raws(self) -> list[np.ndarray]:
        """The pooled states of the lower layers, in order, and at the exit."""
        if self.weights is not None:
            return [weighed(h, self.weights) for h in (*self.lower, self.h)]
        return [POOLINGS[self.pool](h, self.pooled) for h in (*self.lower, self.h)]


def run(
    method: str,
    params: Params,
    model: Any,
    tokenizer: Any,
    text: str,
    *,
    role: str = "document",
    instruction: str | None = None,
    sentences: Sequence[lay.Span] | None = None,
    max_length: int | None = None,
    seed: int = 0,
    wording_of: str | None = None,
) -> Run:
    """One forward pass. `role` decides the wording of echo only: an instruction is used wherever one is given."""
    if model.config.model_type in ENCODERS:
        params = {**params, "start": False}
    p = settings(method, params)
    if method == "reba":
        return _backward(p, model, tokenizer, text, role, instruction)
    arranged = layout(
        method,
        params,
        tokenizer,
        text,
        role=role,
        instruction=instruction,
        sentences=sentences,
        max_length=max_length,
        wording_of=wording_of,
    )
    if model.config.model_type in ENCODERS and not p["trained"]:  # the specials behind the text stay
        arranged.ids.extend(lay.behind(tokenizer))
    pooled = list(arranged.text)
    if p.get("preset") == "released":  # an end token behind it all, pooled too
        pooled.append(len(arranged.ids))
        arranged.ids.append(tokenizer.eos_token_id)
    span = p.get("range") or default_range(model.config.num_hidden_layers)
    top = exit_layer(model, p["exit"])
    init = p.get("init", "scaled")
    vectors = {
        position: torch.from_numpy(value(model, kind, seed, init, tokenizer))
        for position, kind in arranged.placeholders.items()
    }
    tau = temperature(p, len(arranged.ids), role)
    route = (p["layers"], p["bias"], p["n"], p["rebase"])
    states = forward(model, arranged.ids, vectors, arranged.edges, span, top, tau, route)
    pool, prompt = p["read"] or (p.get("pool", "mean"), method == "kv")
    if prompt or p["specials"]:
        pooled = _covered(p, model, tokenizer, arranged, prompt)
    if p["read"] is None and (method in LAST or p["prompt"] in LAST or "{text}" in (p["prompt"] or "")):
        pool = "last"
    if pool == "all":
        pooled, pool = sorted([*arranged.text, *arranged.placeholders]), "mean"
        states = [copied(h, arranged.edges) if span[0] <= at < span[1] else h for at, h in enumerate(states)]
    several = p.get("averaged", 1)
    h = sum(states[top - below] for below in range(several)) / several
    weights = None if p["sif"] is None else {at: sif(tokenizer, arranged.ids[at], p["sif"]) for at in pooled}
    return Run(arranged, h.numpy(), pooled, pool, weights, [states[at].numpy() for at in p.get("apart", ())])


def _covered(p: dict[str, Any], model: Any, tokenizer: Any, arranged: lay.Layout, prompt: bool) -> list[int]:
    """Positions that a mean covers which covers more than the text."""
    closed = p["trained"] or model.config.model_type in ENCODERS
    count, last = len(arranged.ids), len(arranged.ids) - (len(lay.behind(tokenizer)) if closed else 0)
    front = sum(token.owner == "special" for token in lay.fill(tokenizer, "{text}", "a", start=starts(p)).tokens)
    words = [at for at in range(front, last) if at not in arranged.placeholders]
    pooled = words if prompt else list(arranged.text)
    if p["specials"] and (prompt or len(words) == len(arranged.text)):
        pooled = [*range(front), *pooled]
    return [*pooled, *range(last, count)] if p["specials"] else pooled


def _backward(p: dict[str, Any], model: Any, tokenizer: Any, text: str, role: str, instruction: str | None) -> Run:
    """Where ReBA is read, e stands for h: at the first copy, whose last token is the array's."""
    arranged = backward.arranged(tokenizer, text, p, instruction)
    tau = temperature(p, len(arranged.ids), role)
    if p["variant"] == "released":
        arranged, raw = backward.released(model, tokenizer, text, p, instruction, tau=tau)
        return Run(arranged, raw[None], [0], "last")
    arranged, e = backward.embeddings(model, tokenizer, text, p, instruction, tau=tau)
    return Run(arranged, e, list(arranged.text), p["pool"])


def embed(method: str, params: Params, model: Any, tokenizer: Any, text: str, **options: Any) -> np.ndarray:
    """Unit vector of a text, shape (hidden,), float64.

    Args:
        method: plain, prompteol, tp or htp.
        params: Its parameters; missing ones as in `DEFAULTS`. `range` is a pair (s, e) or None for the default rule.
        model: A causal language model of transformers.
        tokenizer: Its fast tokenizer.
        text: Anything that has a token.
        **options: role, instruction, sentences [(start, end), ...], max_length, seed: see `run`.
    """
    vectors = apart(method, params, model, tokenizer, text, **options)
    if params.get("standardise"):
        asked = {**options, "role": "query"} if options.get("role") == "query" else {}
        vectors = standardised(vectors, *calibration(method, params, model, tokenizer, asked))
    return unit(sum(vectors) / len(vectors))


_calibrations: dict[str, tuple[Any, Any, list[Any], list[Any] | None]] = {}
"""With the model and tokenizer that they are of, which so keep their ids."""


def calibration(
    method: str, params: Params, model: Any, tokenizer: Any, asked: dict[str, Any]
) -> tuple[list[Any], list[Any] | None]:
    """Vectors of the passages of `standardise` and, for a question, of its questions; the same for every text."""
    key = repr((method, params, id(model), id(tokenizer), {**asked, "sentences": None}))
    if key not in _calibrations:
        seen, heard = (
            [apart(method, params, model, tokenizer, text, **{**role, "sentences": [(0, len(text))]}) for text in texts]
            for texts, role in zip(params["standardise"], ({}, asked), strict=True)
        )
        _calibrations[key] = model, tokenizer, seen, heard if asked else None
    return _calibrations[key][2:]


def apart(method: str, params: Params, model: Any, tokenizer: Any, text: str, **options: Any) -> list[np.ndarray]:
    """Unit vectors of a text, of each layer that is pooled by itself."""
    wordings = params.get("prompts") or [None]
    done = [run(method, params, model, tokenizer, text, **options, wording_of=each) for each in wordings]
    raws = [sum(pooled) / len(done) for pooled in zip(*(one.raws() for one in done), strict=True)]
    if (drop := params.get("filter")) is not None:
        raws = [filtered(raw, model.get_input_embeddings().weight, drop) for raw in raws]
    return [unit(raw) for raw in raws]


def token_states(
    method: str, params: Params, model: Any, tokenizer: Any, text: str, **options: Any
) -> tuple[np.ndarray, list[lay.Span]]:
    """States at the exit of the text's tokens, shape (tokens, hidden), and their characters in the text."""
    done = run(method, params, model, tokenizer, text, **options)
    return done.h[done.layout.text], done.layout.spans
