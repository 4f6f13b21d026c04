"""ReBA: a token's embedding as the sum of the later states, weighted by the attention that they paid to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import layout as lay
from .forward import exit_layer, forward


def attention_matrix(layers: Sequence[Any]) -> np.ndarray:
    """Algorithm 1: the largest entry of the symmetric attention matrices over all layers and heads.

    Args:
        layers: For each layer its attention, shape (heads, tokens, tokens), lower triangular.
    """
    largest = np.zeros(layers[0].shape[1:])
    for heads in layers:
        for attention in heads.numpy():
            largest = np.maximum(largest, (attention + attention.T) / 2)
    return largest


def look(
    model: Any, ids: Sequence[int], top: int, p: Mapping[str, Any], averaged: int = 1, **inside: Any
) -> tuple[np.ndarray, np.ndarray]:
    """States at the exit, averaged with those of the layers below, and the attention matrix of the layers up to it."""
    seen: list[Any] = []
    h = forward(model, ids, upto=top, seen=seen, **inside)
    matrix = attention_matrix(seen[-1:] if p["last_layer_only"] else seen)
    return np.mean([h[top - below].numpy() for below in range(averaged)], axis=0), matrix


def backward(a: np.ndarray, v: np.ndarray, i: int) -> np.ndarray:
    """Equation 4: e_i, over the states from i on."""
    return np.asarray(a[i, i:] @ v[i:])


def arranged(tokenizer: Any, text: str, p: Mapping[str, Any], instruction: str | None) -> lay.Layout:
    """The specials, an instruction, and the text k times: its ids, or the string with the joiner between."""
    joiner = p["joiner"]
    template = "{text}" if joiner is None else joiner.join(["{text}"] * p["k"])
    start = p["start"] and p["variant"] != "released"
    filled = lay.fill(tokenizer, template, text, instruction, start=start)
    filled.start, filled.end = filled.first, filled.first + len(text)
    body = []
    for token in filled.tokens:
        if token.owner != "special":
            token.owner = "text" if filled.start <= filled.anchor(token) < filled.end else "prompt"
        if token.owner == "text":
            body.append(token)
    layout = lay.plain(filled)
    if joiner is None and p["piece"] is None:
        layout.ids += [token.id for _ in range(p["k"] - 1) for token in body]
    return layout


def embeddings(
    model: Any, tokenizer: Any, text: str, p: Mapping[str, Any], instruction: str | None, **inside: Any
) -> tuple[lay.Layout, np.ndarray]:
    """The layout and e at every position of the first copy; the rest of the array is zero."""
    layout = arranged(tokenizer, text, p, instruction)
    top = exit_layer(model, p["exit"])
    e = np.zeros((layout.text[-1] + 1, model.config.hidden_size))
    if p["piece"] is None:
        v, a = look(model, layout.ids, top, p, p.get("averaged", 1), **inside)
        for i in layout.text:
            e[i] = backward(a, v, i)
        return layout, e
    # Section 6: one pass over the whole gives v; each piece is repeated alone, and its attention refines them.
    v, _ = look(model, layout.ids, top, p, p.get("averaged", 1), **inside)
    specials = [
        token.id for token in lay.fill(tokenizer, "{text}", text, start=p["start"]).tokens if token.owner == "special"
    ]
    for first in range(0, len(layout.text), p["piece"]):
        run = layout.text[first : first + p["piece"]]
        _, a = look(model, [*specials, *[layout.ids[i] for i in run] * p["k"]], top, p, **inside)
        a = a[len(specials) :, len(specials) :]
        states = np.concatenate([v[run]] * p["k"])
        for i, position in enumerate(run):
            e[position] = backward(a, states, i)
    return layout, e


def released(
    model: Any,
    tokenizer: Any,
    text: str,
    p: Mapping[str, Any],
    instruction: str | None,
    max_length: int | None = None,
    **inside: Any,
) -> tuple[lay.Layout, np.ndarray]:
    """The layout and the sentence's vector as the authors' code has it.

    Weights sum to 1, BOS is among the states, and what does not fit is cut off the repeated text.
    """
    layout = arranged(tokenizer, text, p, instruction)
    v, a = look(model, layout.ids[:max_length], exit_layer(model, p["exit"]), p, **inside)
    if p["pool"] == "last":
        weights = a[-1]
    else:
        weights = np.triu(a)[: max(len(v) // 2, 1)].sum(0)
    return layout, (weights / weights.sum()) @ v


def word(
    model: Any,
    tokenizer: Any,
    text: str,
    span: lay.Span,
    p: Mapping[str, Any],
    instruction: str | None = None,
    **inside: Any,
) -> np.ndarray:
    """A word's raw vector: the mean of e over the tokens that overlap its characters in the first copy.

    As released: their rows summed, over all states (over the later ones where sentences are means), divided by the sum.
    """
    layout, e = embeddings(model, tokenizer, text, p, instruction, **inside)
    own = [i for i, (start, end) in zip(layout.text, layout.spans, strict=True) if start < span[1] and end > span[0]]
    if p["variant"] == "paper":
        return e[own].mean(0)
    v, a = look(model, layout.ids, exit_layer(model, p["exit"]), p, **inside)
    if p["pool"] == "mean":
        a = np.triu(a)
    weights = a[own].sum(0)
    return weights / weights.sum() @ v
