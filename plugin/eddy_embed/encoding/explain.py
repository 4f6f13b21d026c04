"""The facts of how a text becomes a vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from eddy_embed.encoding.encoder import Encoder, repeated_tokens
from eddy_embed.encoding.planner import TextPlan
from eddy_embed.methods.method import Method
from eddy_embed.parts.layout import TextRole
from eddy_embed.parts.readout import LayerMean, Readout, weighed
from eddy_embed.text.sequence import PLACEHOLDER_ID, Role

SHOWN = 40
"""Tokens that the text form lists."""
_PLACEHOLDERS = {Role.BPST: "<B-PST>", Role.PST: "<PST>"}


@dataclass(frozen=True)
class ExplainedToken:
    """One token of the first window.

    Attributes:
        piece: Its spelling; `<PST>` and `<B-PST>` for placeholders.
        id: Its id in the vocabulary, -1 for placeholders.
        role: What it is.
        start: Its first character in the text, -1 if it is not text.
        end: The character after its last, -1 if it is not text.
        source: The position whose state it gets between layers, None for none.
        weight: Its share of the pooled state.
    """

    piece: str
    id: int
    role: Role
    start: int
    end: int
    source: int | None
    weight: float


@dataclass(frozen=True)
class Explanation:
    """How a text becomes a vector. Layers are counted from 1; 0 is the token embeddings.

    Attributes:
        method: The method in text form.
        tokens: Tokens of the first window, in order.
        text_tokens: Tokens of the text itself.
        sequence_tokens: Tokens run through the model, in all windows and pieces.
        windows: Number of windows.
        truncated: Tokens cut, as asked.
        pooling: How states are pooled.
        exit_layer: The last layer that runs.
        averaged: Layers whose states are averaged.
        layers: Number of layers of the full model.
        rewired: Layers on whose input states are copied.
        rerouted: Layers whose attention has extra keys and values.
        watched: Layers whose attention weighs the states that are read.
        logits: Factor on the attention logits of the first window.
        kernels: Attention kernel of each layer that runs, for the first window.
        bytes: Bytes of the embeddings and the layers that run: all that was loaded, or is shared.
        device: Where it runs.
        dtype: In which numbers it runs.
    """

    method: str
    tokens: list[ExplainedToken]
    text_tokens: int
    sequence_tokens: int
    windows: int
    truncated: int
    pooling: str
    exit_layer: int
    averaged: list[int]
    layers: int
    rewired: list[int]
    rerouted: list[int]
    watched: list[int]
    logits: float
    kernels: list[str]
    bytes: int
    device: str
    dtype: str

    def __str__(self) -> str:
        """Return the facts, one a line, and a table of the first tokens."""
        kernels = (f"{kernel} in {self.kernels.count(kernel)}" for kernel in dict.fromkeys(self.kernels))
        facts = {
            "method": self.method,
            "layers": f"{self.exit_layer} of {self.layers} run, {_numbers(self.averaged)} read",
            "pooling": self.pooling,
            "copied": _numbers(self.rewired),
            "rerouted": _numbers(self.rerouted),
            "watched": _numbers(self.watched),
            "logits": "" if self.logits == 1 else f"times {self.logits:.3g}",
            "kernels": ", ".join(kernels),
            "tokens": f"{self.text_tokens} of text, {self.sequence_tokens} run, {self.truncated} cut",
            "windows": str(self.windows),
            "memory": f"{self.bytes / 2**20:.1f} MiB, {self.dtype} on {self.device}",
        }
        lines = [f"{name:<9} {value}" for name, value in facts.items() if value]
        lines += ["", f"{'':>5} {'token':<16} {'role':<8} {'characters':<12} {'copied from':<12} weight"]
        for index, token in enumerate(self.tokens[:SHOWN]):
            characters = f"{token.start}-{token.end}" if token.start >= 0 else ""
            source = "" if token.source is None else str(token.source)
            weight = f"{token.weight:.4f}" if token.weight else ""
            row = f"{index:>5} {token.piece:<16} {token.role.name:<8} {characters:<12} {source:<12} {weight}"
            lines.append(row.rstrip())
        if len(self.tokens) > SHOWN:
            lines.append(f"      .. {len(self.tokens) - SHOWN} more tokens in the first window")
        return "\n".join(lines)


def _numbers(layers: list[int]) -> str:
    return ", ".join(map(str, layers))


def explain(pipeline: Encoder, plan: TextPlan, method: Method, role: TextRole) -> Explanation:
    """Explain a text that the pipeline of a method has planned."""
    host, token_weights = pipeline.open_runner.host, pipeline.open_runner.token_weights
    first = plan.windows[0].materialize()
    sequence = first.sequence
    readout = cast("Readout", method.readout)
    index, weight = readout.weights(sequence, first.counted)
    if token_weights is not None:
        weight = weighed(weight, sequence.ids[index], token_weights)
        weight /= weight.sum()
    weights = np.zeros(len(sequence))
    np.add.at(weights, index, weight)
    sources = dict(sequence.edges.tolist())
    tokens = []
    columns = (array.tolist() for array in (sequence.ids, sequence.roles, sequence.starts, sequence.ends, weights))
    for position, (token, kind, start, end, share) in enumerate(zip(*columns, strict=True)):
        piece = _PLACEHOLDERS[Role(kind)] if token == PLACEHOLDER_ID else pipeline.planner.tokenizer.piece(token)
        tokens.append(ExplainedToken(piece, token, Role(kind), start, end, sources.get(position), share))
    top = host.exit_layer
    rewired = method.rewire.inputs(top) if method.rewire and len(sequence.edges) else ()
    watch, temperature = method.watch, method.temperature
    repetition = method.layout.repetition if method.layout else None
    return Explanation(
        method=str(method),
        tokens=tokens,
        text_tokens=plan.tokens,
        sequence_tokens=sum(window.length + repeated_tokens(window, repetition) for window in plan.windows),
        windows=plan.window_count,
        truncated=plan.truncated,
        pooling=str(readout.pool),
        exit_layer=top,
        averaged=list((method.average or LayerMean()).layers(top)),
        layers=host.layers,
        rewired=[layer + 1 for layer in rewired],
        rerouted=[layer for layer in (method.reroute.known if method.reroute else ()) if layer <= top],
        watched=[] if watch is None else list(range(top if watch.last_layer_only else 1, top + 1)),
        logits=1.0 if temperature is None else temperature.factor(len(sequence), role == "query"),
        # At exit 0 no layer runs.
        kernels=[kernel.at(len(sequence)) for kernel in host.kernels(method.reroute, watch is not None)] if top else [],
        bytes=host.bytes,
        device=str(host.device),
        dtype=host.dtype_name,
    )
