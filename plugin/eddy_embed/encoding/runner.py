"""Planned texts through the model: passes, readout, and the sums over the windows of each text."""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np
import torch

from eddy_embed.encoding.document import positions_by_span
from eddy_embed.encoding.planner import TextPlan
from eddy_embed.errors import InvalidParameter, UnsupportedModel
from eddy_embed.methods.method import Method
from eddy_embed.model.attention.watcher import AttentionRecorder, Refiner
from eddy_embed.model.devices import to_device, to_processor
from eddy_embed.model.host import TEMPERATURE, ModelView
from eddy_embed.parts.copy_edges import copy_states
from eddy_embed.parts.layout import TextRole
from eddy_embed.parts.readout import LayerMean, Readout, gather, weighed
from eddy_embed.text.sequence import LazyWindow, Packed, TokenSequence, Window, pack, passes
from eddy_embed.utils.arrays import Doubles, Ints
from eddy_embed.utils.memory import out_of_memory
from eddy_embed.utils.progress import Progress

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(eq=False)
class PooledSums:
    """Sums of raw states of one text over its windows.

    Attributes:
        document: Sum of the sequences' pooled states, each times its share, shape (width,).
        parts: For each division of the text, the sum of states of every span, shape (spans, width).
        sizes: For each division of the text, the tokens in those sums, shape (spans,).
        weight: Sum of the weights in `document`: 1, unless tokens are weighed.
        weights: For each division, the sum of the tokens' weights, shape (spans,): their number, unless weighed.
    """

    document: Doubles
    parts: list[Doubles]
    sizes: list[Ints]
    weight: float
    weights: list[Doubles]

    @classmethod
    def zero(cls, width: int, divisions: Seq[Ints]) -> PooledSums:
        """Return sums of nothing, for divisions of shape (spans, 2)."""
        return cls(
            document=np.zeros(width),
            parts=[np.zeros((len(spans), width)) for spans in divisions],
            sizes=[np.zeros(len(spans), np.int64) for spans in divisions],
            weight=0.0,
            weights=[np.zeros(len(spans)) for spans in divisions],
        )

    @classmethod
    def of_pieces(cls, pieces: Seq[PooledSums], tokens: Ints) -> PooledSums:
        """Return sums of a text out of those of its pieces, which have so many tokens, shape (pieces,).

        Its last division are the pieces, the others theirs.
        """
        weights = tokens * np.array([piece.weight for piece in pieces])
        totals = weights[:, None] * np.stack([piece.document for piece in pieces])
        columns = zip(*((piece.parts, piece.sizes, piece.weights) for piece in pieces), strict=True)
        parts, sizes, inner = ([np.concatenate(arrays) for arrays in zip(*of, strict=True)] for of in columns)
        document = totals.sum(0) / weights.sum()
        return cls(document, [*parts, totals], [*sizes, tokens], 1.0, [*inner, weights])

    def put_first(self, other: PooledSums) -> None:
        """Put another's last division before the divisions."""
        self.parts.insert(0, other.parts[-1])
        self.sizes.insert(0, other.sizes[-1])
        self.weights.insert(0, other.weights[-1])


@dataclass(frozen=True, eq=False)
class PoolingIndex:
    """Positions that one window reads, with weights: the document's, then those of spans of each division."""

    index: Ints
    weight: Doubles
    lengths: Ints
    spans: list[Ints]

    @property
    def totals(self) -> Doubles:
        """Sum of the weights of each run of positions."""
        return np.asarray(np.add.reduceat(self.weight, np.cumsum(self.lengths) - self.lengths))


_Read = tuple[PoolingIndex, Doubles, torch.Event | None]
"""What one window reads: its rows hold their values once the event is reached."""


class Runner:
    """Runs planned texts with one method on one host."""

    def __init__(
        self,
        host: ModelView,
        method: Method,
        token_weights: Doubles | None = None,
        *,
        batch_tokens: int,
        batch_size: int | None,
        space: int | None = None,
    ) -> None:
        """Prepare a resolved method: its placeholders' values, and a trial of what it asks of attention.

        `token_weights` has the weight of each token of the vocabulary in means, shape (tokens,); None: all the same.
        `space` is the id of a blank, if placeholders have its embedding.
        """
        self.host, self.token_weights, self.space = host, token_weights, space
        self.readout = cast("Readout", method.readout)
        self._rewired = method.rewire.inputs(host.exit_layer) if method.rewire else range(0)
        self._copied = method.copied(host.layers)
        self._average = method.average or LayerMean()
        self._temperature = method.temperature
        self._reroute = method.reroute
        repetition = method.layout.repetition if method.layout else None
        self._refiner = None if method.watch is None else Refiner(method.watch, repetition, batch_tokens)
        check_compatible(host, method)
        # What a method asks of attention is tried when it is prepared, not with the first text.
        inside = {TEMPERATURE: method.temperature, "re-routed entries": method.reroute, "a watch": method.watch}
        host.check_attention_reachable([name for name, part in inside.items() if part is not None])
        host.kernels(self._reroute, watched=method.watch is not None)
        self._values = host.placeholder_values(method.rewire, space) if method.rewire else None
        # Concurrent passes of several threads would only share the processor, and multiply the memory.
        self._lock = threading.Lock()
        self.batch_tokens = batch_tokens
        self._batch_size = batch_size
        self._layers: tuple[int, ...] = (host.exit_layer,)

    @property
    def width(self) -> int:
        """Width of the sums."""
        return self.host.width * self._average.apart * len(self._layers)

    def at_layers(self, layers: tuple[int, ...]) -> Runner:
        """Return the same runner, reading the states of several layers side by side out of each pass.

        Raises:
            InvalidParameter: A layer is above the host's exit, or the method copies states at its exit, or weighs them
                by the attention up to it.
        """
        by_exit = self.readout.placeholders or self._refiner is not None
        if by_exit or not layers or not 0 <= min(layers) <= max(layers) <= self.host.exit_layer:
            raise InvalidParameter(f"layers {layers} cannot be read out of one pass up to layer {self.host.exit_layer}")
        self._average.layers(min(layers))
        other = copy.copy(self)
        other._layers = layers
        return other

    def run(
        self,
        planned: Seq[TextPlan],
        divisions: Seq[Seq[Ints]],
        bar: Progress | None = None,
        role: TextRole = "document",
    ) -> list[PooledSums]:
        """Return sums of each planned text; `divisions` hold the spans wanted of each, of shape (spans, 2)."""
        windows = [(owner, window) for owner, plan in enumerate(planned) for window in plan.windows]
        if bar is not None:
            bar.expect(len(windows))
        sums = [PooledSums.zero(self.width, spans) for spans in divisions]

        for members, results in self._passes(windows, divisions, role):
            for (owner, window), (read, rows, arrived) in zip(members, results, strict=True):
                if arrived is not None:
                    arrived.synchronize()
                _add(sums[owner], window.share, read, rows)
            if bar is not None:
                bar.advance(len(members))
        if self.token_weights is not None:
            for total in sums:
                total.document /= total.weight
        return sums

    def _passes(
        self, windows: list[tuple[int, Window | LazyWindow]], divisions: Seq[Seq[Ints]], role: TextRole
    ) -> Iterator[tuple[list[tuple[int, Window]], list[_Read]]]:
        """Yield the windows of each pass with what they read; an NVIDIA device computes the next pass meanwhile."""

        def run_together(members: list[tuple[int, Window]]) -> list[_Read]:
            return self._pass([window for _, window in members], [divisions[owner] for owner, _ in members], role)

        running: deque[tuple[list[tuple[int, Window]], list[_Read]]] = deque()
        for batch in passes([window.length for _, window in windows], self.batch_tokens, self._batch_size):
            members = [(owner, window.materialize()) for owner, window in (windows[index] for index in batch)]
            with self._lock:
                running.append((members, run_halving(run_together, members)))
            if len(running) > 1 or self.host.device.type != "cuda":
                yield running.popleft()
        yield from running

    def _pass(self, windows: list[Window], divisions: list[Seq[Ints]], role: TextRole) -> list[_Read]:
        reads = [
            _read(self.readout, self.token_weights, window, spans)
            for window, spans in zip(windows, divisions, strict=True)
        ]
        with torch.inference_mode():
            hidden, starts = self._states([window.sequence for window in windows], reads, role)
            index = np.concatenate([read.index + first for read, first in zip(reads, starts, strict=True)])
            weight = np.concatenate([read.weight for read in reads])
            lengths = np.concatenate([read.lengths for read in reads])
            rows = gather(hidden, *(to_device(array, hidden.device) for array in (index, weight, lengths)))
            if self._refiner is not None:
                totals = np.concatenate([read.totals for read in reads])
                rows = self._refiner.normalized(rows, torch.from_numpy(totals).to(rows))
            sent, arrived = to_processor(rows.double())
        split = np.cumsum([len(read.lengths) for read in reads])[:-1]
        return [(read, values, arrived) for read, values in zip(reads, np.split(sent, split), strict=True)]

    def _states(
        self, sequences: list[TokenSequence], reads: list[PoolingIndex], role: TextRole
    ) -> tuple[torch.Tensor, Ints]:
        """Return the states that are read, and the index in them of each sequence's position 0."""
        refiner = self._refiner
        if refiner is None:
            hidden, packed = self.hidden(sequences, role)
            return hidden, packed.offsets[:-1]
        spans = [(int(read.index.min()), int(read.index.max()) + 1) for read in reads]
        if refiner.by_pieces:
            hidden, packed = self.hidden(sequences, role)
            mixes = refiner.piecewise(sequences, spans, lambda pieces, recorder: self.hidden(pieces, role, recorder))
        else:
            recorder = refiner.recorder(spans)
            hidden, packed = self.hidden(sequences, role, recorder)
            mixes = refiner.recorded(recorder, len(sequences))
        return refiner.states(hidden, packed.offsets, spans, mixes)

    def hidden(
        self, sequences: list[TokenSequence], role: TextRole, watcher: AttentionRecorder | None = None
    ) -> tuple[torch.Tensor, Packed]:
        """Return states of all tokens before any readout, shape (tokens, layers * width), and the packed tokens.

        Layers that are averaged only after they are pooled stand side by side.
        """
        packed = pack(sequences)
        factors = None
        if self._temperature is not None:
            factors = [self._temperature.factor(len(sequence), role == "query") for sequence in sequences]
        wanted = [self._average.layers(layer) for layer in self._layers]
        flat = tuple(layer for layers in wanted for layer in layers)
        hidden = self.host.run(packed, self._rewired, self._values, factors, self._reroute, flat, watcher)
        if len(packed.edges) and any(layer in self._copied for layer in flat):
            edges = to_device(packed.edges, hidden.device)
            states = zip(flat, torch.tensor_split(hidden, len(flat), dim=1), strict=True)
            hidden = torch.cat([copy_states(h, edges) if layer in self._copied else h for layer, h in states], dim=1)
        if self._average.count == 1:
            return hidden, packed
        several = hidden.to(torch.promote_types(hidden.dtype, torch.float32)).reshape(
            len(hidden), len(wanted), self._average.count, self.host.width
        )
        return several.mean(2).flatten(1), packed


def check_compatible(host: ModelView, method: Method) -> None:
    """Refuse methods that make up for left-to-right reading if the model is bidirectional, pool=cls if not."""
    wording = method.layout.chosen if method.layout is not None else {}
    parts = {
        "a prompt": "template" in wording,
        "placeholders": "placeholders" in wording or method.rewire is not None,
        "a repeated text": "repetition" in wording,
        "a start token": method.layout is not None and method.layout.start not in ("auto", None),
        "a rewritten text": "revision" in wording,
        "re-routed entries": method.reroute is not None,
        "a watch": method.watch is not None,
    }
    if method.readout is not None and method.readout.pool == "cls" and not host.bidirectional:
        raise UnsupportedModel(
            f"{host.name} reads from left to right, so its first token has seen nothing of the text and pool=cls would "
            "give all texts one vector; use pool=mean or pool=last"
        )
    asked = [name for name, used in parts.items() if used]
    if host.bidirectional and asked:
        raise UnsupportedModel(
            f"{host.name} reads in both directions, which leaves no reason for {' and '.join(asked)}; use plain, alone "
            "or with tempscale, last2avg, readout or post-processing"
        )


def run_halving(run: Callable[[list[_Item]], list[_Result]], items: list[_Item]) -> list[_Result]:
    """Run items together, or in halves if memory does not suffice; MemoryError if one alone does not fit."""
    try:
        return run(items)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        if len(items) == 1:
            raise MemoryError(
                f"one sequence alone does not fit in memory ({error}); choose a smaller max_length or dtype='bfloat16'"
            ) from error
    # Outside the handler: the exception holds the failed pass's tensors alive.
    middle = len(items) // 2
    return run_halving(run, items[:middle]) + run_halving(run, items[middle:])


def _read(readout: Readout, table: Doubles | None, window: Window, divisions: Seq[Ints]) -> PoolingIndex:
    index, weight = readout.weights(window.sequence, window.counted)
    indices, lengths, present = [index], [len(index)], []
    for spans in divisions:
        present_spans, positions = positions_by_span(window, spans)
        present.append(present_spans)
        indices += positions
        lengths += [len(run) for run in positions]
    flat = np.concatenate(indices)
    weights = np.ones(len(flat))
    weights[: len(weight)] = weight
    if table is not None:
        weights = weighed(weights, window.sequence.ids[flat], table)
    return PoolingIndex(flat, weights, np.array(lengths, np.int64), present)


def _add(sums: PooledSums, share: float, read: PoolingIndex, rows: Doubles) -> None:
    totals = read.totals
    sums.document += share * rows[0]
    sums.weight += share * totals[0]
    start = 1
    for total, size, weight, spans in zip(sums.parts, sums.sizes, sums.weights, read.spans, strict=True):
        end = start + len(spans)
        total[spans] += rows[start:end]
        size[spans] += read.lengths[start:end]
        weight[spans] += totals[start:end]
        start = end
