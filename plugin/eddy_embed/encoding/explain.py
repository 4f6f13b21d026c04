"""An explanation of how a text becomes a vector."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import cast

import numpy as np

from eddy_embed.encoding.pipeline import repeated_tokens
from eddy_embed.encoding.planner import TextPlan
from eddy_embed.methods.method import Method
from eddy_embed.model.backbone import Pooling
from eddy_embed.model.host import Host
from eddy_embed.parts.layout import TextRole
from eddy_embed.parts.readout import LayerMean, Readout
from eddy_embed.parts.token_weights import weighed
from eddy_embed.text.sequence import PLACEHOLDER_ID, Role, Sequence
from eddy_embed.text.tokenizer import Tokenizer
from eddy_embed.utils.arrays import Doubles

SHOWN = 40
"""Tokens that the text form lists."""
_NAMES = {Role.BPST: "<B-PST>", Role.PST: "<PST>"}


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
class HiddenPlaceholder:
    """Placeholders that a sliding window keeps from the first window's text.

    Attributes:
        role: Their kind.
        window: Tokens that a token of these layers sees, itself included.
        layers: Layers with that window among those that see copied states, counted from 1.
        none: Text tokens after placeholders of that kind that see none of them.
        partly: Text tokens that see some of those before them and not all.
    """

    role: Role
    window: int
    layers: tuple[int, ...]
    none: int
    partly: int


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
        pooling: How states are pooled; for an embedding model also what it was trained with.
        exit_layer: The layer read.
        averaged: Layers whose states are averaged, the one read included.
        layers: Layers of the full model.
        rewired: Layers on whose input states are copied, counted from 1.
        copied_at_exit: Layers whose states are copied again before they are averaged, placeholders included.
        hidden: Placeholders that sliding windows hide; empty for none.
        rerouted: Layers whose attention has extra entries, counted from 1.
        entries: Number of last tokens whose keys and values these entries are.
        rebased: Whether their keys are moved to the positions before the first token.
        watched: Layers whose attention weighs the states that are read, counted from 1.
        watched_tokens: Tokens of the first window for which the attention of every later token is recorded.
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
    pooling: str
    exit_layer: int
    averaged: list[int]
    layers: int
    rewired: list[int]
    copied_at_exit: list[int]
    hidden: list[HiddenPlaceholder]
    rerouted: list[int]
    entries: int
    rebased: bool
    watched: list[int]
    watched_tokens: int
    logits: float
    logits_from: str
    kernels: list[str]
    bytes: int
    device: str
    dtype: str

    def _repr_html_(self) -> str:
        """The page, for notebooks."""
        return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        """A page to read."""
        kernels = {kernel: self.kernels.count(kernel) for kernel in dict.fromkeys(self.kernels)}
        rewired = f"inputs of layers {self.rewired[0]} to {self.rewired[-1]}" if self.rewired else "none"
        if self.copied_at_exit:
            before = f"{rewired}, and the " if self.rewired else ""
            rewired = f"{before}output of layer {', '.join(map(str, self.copied_at_exit))}"
        extra = self.sequence_tokens / self.text_tokens - 1
        read = f"layer {self.exit_layer}"
        if len(self.averaged) > 1:
            read = f"the mean of layers {self.averaged[0]} to {self.exit_layer}"
        attention = ", ".join(f"{kernel} in {count} layers" for kernel, count in kernels.items())
        if self.rerouted:
            whose = "last token's" if self.entries == 1 else f"last {self.entries} tokens'"
            attention += f"; {whose} keys and values in layers {', '.join(map(str, self.rerouted))}"
            attention += ", turned to before the first token" * self.rebased
        if self.watched:
            where = f"layers 1 to {self.watched[-1]}" if self.watched[0] == 1 else f"layer {self.watched[-1]}"
            attention += f"; that paid to {self.watched_tokens} tokens watched in {where}"
        if self.logits != 1:
            attention += f"; logits times {self.logits:.3g} ({self.logits_from})"
        lines = [
            f"method    {self.method}",
            f"layers    reads {read} of {self.layers}; {len(self.kernels)} run, "
            f"{self.layers - len(self.kernels)} left out",
            f"pools     {self.pooling}",
            f"copies    {rewired}",
            f"attention {attention}",
            *(f"hidden    {_hidden_from(each)}" for each in self.hidden),
            f"cost      {self.text_tokens} tokens of text, {self.sequence_tokens} run ({extra:+.0%}), "
            f"{self.windows} window{'s' if self.windows > 1 else ''}, {self.truncated} cut",
            f"memory    {self.bytes / 2**20:.1f} MiB of weights, {self.dtype} on {self.device}",
            "",
            f"{'':>5} {'token':<16} {'role':<8} {'characters':<12} {'copied from':<12} weight",
        ]
        for index, token in enumerate(self.tokens[:SHOWN]):
            characters = f"{token.start}-{token.end}" if token.start >= 0 else ""
            source = "" if token.source is None else str(token.source)
            weight = f"{token.weight:.4f}" if token.weight else ""
            lines.append(
                f"{index:>5} {token.piece:<16} {token.role.name:<8} {characters:<12} {source:<12} {weight}".rstrip()
            )
        if len(self.tokens) > SHOWN:
            lines.append(f"      .. {len(self.tokens) - SHOWN} more tokens in the first window")
        return "\n".join(lines)


def _hidden_from(hidden: HiddenPlaceholder) -> str:
    layers = ", ".join(map(str, hidden.layers))
    return (
        f"a window of {hidden.window} tokens, in layers {layers}: {hidden.none} tokens of text see no "
        f"{_NAMES[hidden.role]} in front of them, {hidden.partly} not all"
    )


def _hidden(sequence: Sequence, windows: list[int | None], first: int) -> list[HiddenPlaceholder]:
    """Placeholders that sliding windows hide; `windows` of each layer, `first` layer that sees copied states."""
    text = np.flatnonzero(sequence.roles == Role.TEXT)
    hidden = []
    for window in sorted({window for window in windows[first - 1 :] if window is not None}):
        layers = tuple(layer for layer, own in enumerate(windows, start=1) if layer >= first and own == window)
        for role in _NAMES:
            placed = np.flatnonzero(sequence.roles == role)
            before = np.searchsorted(placed, text)
            unseen = np.searchsorted(placed, text - window, side="right")
            none = int(((before > 0) & (unseen == before)).sum())
            partly = int(((unseen > 0) & (unseen < before)).sum())
            if none or partly:
                hidden.append(HiddenPlaceholder(role, window, layers, none, partly))
    return hidden


def _watched(method: Method, host: Host) -> list[int]:
    if method.watch is None:
        return []
    return list(range(host.exit_layer if method.watch.last_layer_only else 1, host.exit_layer + 1))


def _pooling(readout: Readout, trained: Pooling | None) -> str:
    covered = [name for name in ("prompt", "specials", "placeholders") if getattr(readout, name)]
    also = "".join(f", {name}" for name in covered if readout.pool not in ("last", "cls"))
    own = f"; the model was trained with {trained.named}" if trained else ""
    return f"{readout.pool} over the text{also}{own}" if readout.spans else f"{readout.pool}{also}{own}"


def explain(
    plan: TextPlan,
    *,
    method: Method,
    host: Host,
    tokenizer: Tokenizer,
    role: TextRole,
    trained: Pooling | None = None,
    token_weights: Doubles | None = None,
) -> Explanation:
    """Explain a planned text; `token_weights` as the runner has them."""
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
        piece = _NAMES[Role(kind)] if token == PLACEHOLDER_ID else tokenizer.piece(token)
        tokens.append(ExplainedToken(piece, token, Role(kind), start, end, sources.get(position), share))
    averaged = (method.average or LayerMean(1)).layers(host.exit_layer)
    rewired = copied = range(0)
    if method.rewire and len(sequence.edges):
        rewired = method.rewire.inputs(host.exit_layer)
        copied = method.copied(host.layers)
    rerouted = [layer for layer in (method.reroute.known if method.reroute else ()) if layer <= host.exit_layer]
    windows = [spec.window for spec in host.specs]
    repetition = method.layout.repetition if method.layout else None
    query = role == "query"
    return Explanation(
        method=str(method),
        tokens=tokens,
        text_tokens=plan.tokens,
        sequence_tokens=sum(window.length + repeated_tokens(window, repetition) for window in plan.windows),
        windows=plan.window_count,
        truncated=plan.truncated,
        pooling=_pooling(readout, trained),
        exit_layer=host.exit_layer,
        averaged=list(averaged),
        layers=host.layers,
        rewired=[layer + 1 for layer in rewired],
        copied_at_exit=[layer for layer in averaged if layer in copied],
        hidden=_hidden(sequence, windows, rewired[0] + 1) if rewired else [],
        rerouted=rerouted,
        entries=method.reroute.entries if method.reroute and rerouted else 0,
        rebased=bool(rerouted) and method.reroute is not None and method.reroute.rebase,
        watched=_watched(method, host),
        watched_tokens=int(np.ptp(index)) + 1 if method.watch else 0,
        logits=method.temperature.factor(len(sequence), query) if method.temperature else 1.0,
        logits_from=method.temperature.reason(len(sequence), query) if method.temperature else "",
        kernels=[kernel.at(len(sequence)) for kernel in host.kernels(method.reroute, method.watch is not None)]
        if host.exit_layer
        else [],  # at exit 0 no layer runs
        bytes=host.bytes,
        device=str(host.device),
        dtype=host.dtype_name,
    )
