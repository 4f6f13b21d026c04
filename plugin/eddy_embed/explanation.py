"""What happens to a text, made visible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from eddy_embed.readout import LayerMean
from eddy_embed.repetition import repeated_tokens
from eddy_embed.sequence import PLACEHOLDER_ID, Role

if TYPE_CHECKING:
    from eddy_embed.host import Host
    from eddy_embed.layout import TextRole
    from eddy_embed.method import Method
    from eddy_embed.plan import Planned
    from eddy_embed.readout import Readout
    from eddy_embed.tokens import Tokenizer

SHOWN = 40
"""Tokens that the text form lists."""


@dataclass(frozen=True)
class ExplainedToken:
    """One token of the first window.

    Attributes:
        piece: Its spelling; `<PST>` and `<B-PST>` for placeholders.
        id: Its id in the vocabulary, -1 for placeholders.
        role: What it is there for.
        start: Its first character in the text, -1 where it is not text.
        end: The character after its last, -1 where it is not text.
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
    """How a text becomes a vector.

    Attributes:
        method: The method in text form.
        tokens: Tokens of the first window, in order.
        text_tokens: Tokens of the text itself.
        sequence_tokens: Tokens run through the model, in all windows and pieces.
        windows: Number of windows.
        truncated: Tokens cut, as asked.
        exit_layer: The layer read.
        averaged: Layers whose states are averaged, the one read included.
        layers: Layers of the full model.
        rewired: Layers on whose input states are copied, counted from 1.
        rerouted: Layers whose attention has further entries, counted from 1.
        watched: Layers whose attention weighs the states that are read, counted from 1.
        watched_tokens: Tokens of the first window that are watched; of these, attention by every later one is kept.
        logits: Factor on the attention logits of the first window.
        logits_from: Where that factor comes from, empty without a temperature.
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
    exit_layer: int
    averaged: list[int]
    layers: int
    rewired: list[int]
    rerouted: list[int]
    watched: list[int]
    watched_tokens: int
    logits: float
    logits_from: str
    kernels: list[str]
    bytes: int
    device: str
    dtype: str

    def __str__(self) -> str:
        """A page to read."""
        kernels = {kernel: self.kernels.count(kernel) for kernel in dict.fromkeys(self.kernels)}
        rewired = f"inputs of layers {self.rewired[0]} to {self.rewired[-1]}" if self.rewired else "none"
        extra = self.sequence_tokens / self.text_tokens - 1
        read = f"layer {self.exit_layer}"
        if len(self.averaged) > 1:
            read = f"the mean of layers {self.averaged[0]} to {self.exit_layer}"
        attention = ", ".join(f"{kernel} in {count} layers" for kernel, count in kernels.items())
        if self.rerouted:
            attention += f"; last token's keys and values in layers {', '.join(map(str, self.rerouted))}"
        if self.watched:
            attention += f"; that paid to {self.watched_tokens} tokens watched in layers 1 to {self.watched[-1]}"
        if self.logits != 1:
            attention += f"; logits times {self.logits:.3g} ({self.logits_from})"
        lines = [
            f"method    {self.method}",
            f"layers    reads {read} of {self.layers}; {len(self.kernels)} run, "
            f"{self.layers - len(self.kernels)} left out",
            f"copies    {rewired}",
            f"attention {attention}",
            f"cost      {self.text_tokens} tokens of text, {self.sequence_tokens} run ({extra:+.0%}), "
            f"{self.windows} window{'s' if self.windows > 1 else ''}, {self.truncated} cut",
            f"memory    {self.bytes / 2**20:.1f} MiB of weights, {self.dtype} on {self.device}",
            "",
            f"{'':>5} {'token':<16} {'role':<8} {'characters':<12} {'copied from':<12} weight",
        ]
        for at, token in enumerate(self.tokens[:SHOWN]):
            characters = f"{token.start}-{token.end}" if token.start >= 0 else ""
            source = "" if token.source is None else str(token.source)
            weight = f"{token.weight:.4f}" if token.weight else ""
            lines.append(
                f"{at:>5} {token.piece:<16} {token.role.name:<8} {characters:<12} {source:<12} {weight}".rstrip()
            )
        if len(self.tokens) > SHOWN:
            lines.append(f"      .. {len(self.tokens) - SHOWN} more tokens in the first window")
        return "\n".join(lines)


def explain(plan: Planned, *, method: Method, host: Host, tokenizer: Tokenizer, role: TextRole) -> Explanation:
    """Explain a planned text.

    Args:
        plan: The text.
        method: The resolved method.
        host: The model.
        tokenizer: Its tokenizer.
        role: What the text is.
    """
    job = plan.jobs[0]
    sequence = job.sequence
    index, weight = cast("Readout", method.readout).weights(sequence, job.counted)
    weights = np.zeros(len(sequence))
    np.add.at(weights, index, weight)
    sources = dict(sequence.edges.tolist())
    names = {Role.PST: "<PST>", Role.BPST: "<B-PST>"}
    tokens = []
    for at, (token, kind) in enumerate(zip(sequence.ids.tolist(), sequence.roles.tolist(), strict=True)):
        piece = names[Role(kind)] if token == PLACEHOLDER_ID else tokenizer.piece(token)
        start, end = int(sequence.starts[at]), int(sequence.ends[at])
        tokens.append(ExplainedToken(piece, token, Role(kind), start, end, sources.get(at), float(weights[at])))
    rewired = method.rewire.inputs(host.exit_layer) if method.rewire and len(sequence.edges) else range(0)
    rerouted = method.reroute.layers if method.reroute else ()
    repetition = method.layout.repetition if method.layout else None
    return Explanation(
        method=str(method),
        tokens=tokens,
        text_tokens=plan.tokens,
        sequence_tokens=sum(len(each.sequence) + repeated_tokens(each.sequence, repetition) for each in plan.jobs),
        windows=plan.windows,
        truncated=plan.truncated,
        exit_layer=host.exit_layer,
        averaged=list((method.average or LayerMean(1)).layers(host.exit_layer)),
        layers=host.layers,
        rewired=[layer + 1 for layer in rewired],
        rerouted=[layer for layer in rerouted or () if layer <= host.exit_layer],
        watched=list(range(1, host.exit_layer + 1)) if method.watch else [],
        watched_tokens=int(np.ptp(index)) + 1 if method.watch else 0,
        logits=method.temperature.factor(len(sequence), role == "query") if method.temperature else 1.0,
        logits_from=method.temperature.reason(len(sequence), role == "query") if method.temperature else "",
        kernels=[each.at(len(sequence)) for each in host.kernels(method.reroute, method.watch is not None)],
        bytes=host.bytes,
        device=str(host.device),
        dtype=str(host.dtype).removeprefix("torch."),
    )
