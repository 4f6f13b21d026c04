"""One pass over a sample of sentences, and the intrinsic dimension of their last token's states at every layer."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from eddy_embed import methods
from eddy_embed.analysis.layers.intrinsic_dimension import distinct, intrinsic_dimension
from eddy_embed.analysis.layers.proposal import Proposal, propose
from eddy_embed.encoding.build import budget, host_for, open_model, planner_for
from eddy_embed.encoding.planner import Planner
from eddy_embed.encoding.runner import check_compatible, run_halving
from eddy_embed.encoding.validation import check_count, check_options, checked_text_list, torch_name
from eddy_embed.errors import InvalidParameter, NotFinite
from eddy_embed.model.host import Host
from eddy_embed.text.sequence import pack, passes
from eddy_embed.utils.arrays import Doubles
from eddy_embed.utils.progress import Progress

SENTENCES = 1000
"""Sentences that the paper measures on."""
ALIKE = 1e-5
"""States this near to their mean, relative to its length, are one: what differs is rounding."""
FEWEST = 100
"""Fewest different sentences or states; at 100 an estimate is off by a tenth, which is what the rule looks for."""


@dataclass(frozen=True)
class LayerMeasurement:
    """Intrinsic dimension of a model's states on a sample, and the layers that follow from it.

    Attributes:
        model: Under which it was asked for, or its class.
        layers: Number L of layers of the model.
        sentences: Sentences measured on.
        seed: Of their choice among those of the sample.
        dimensions: Of h[0] .. h[L-1]; NaN where there are too few different states for an estimate, shape (L,).
        different: Number of different states at each of them, shape (L,).
        proposal: The layers to re-route.
    """

    model: str
    layers: int
    sentences: int
    seed: int
    dimensions: tuple[float, ...]
    different: tuple[int, ...]
    proposal: Proposal

    @property
    def settings(self) -> dict[str, Any]:
        """All of it as plain values for JSON; None in place of NaN."""
        return {
            "model": self.model,
            "method": self.proposal.method,
            "layers": list(self.proposal.layers),
            "rule": self.proposal.rule,
            "minima": list(self.proposal.minima),
            "model_layers": self.layers,
            "sentences": self.sentences,
            "seed": self.seed,
            "dimensions": [None if math.isnan(value) else value for value in self.dimensions],
            "different": list(self.different),
        }


def draw(sentences: Iterable[str], count: int = SENTENCES, seed: int = 0) -> list[str]:
    """So many different sentences, in their order.

    Args:
        sentences: Of the sample; those that occur again count once.
        count: How many.
        seed: Of the choice, the same on every machine.

    Raises:
        InvalidText: A sentence is blank, no string, or not valid Unicode.
        InvalidParameter: There are not so many, or so many are too few.
    """
    check_count("sentences", count)
    if count < FEWEST:
        raise InvalidParameter(f"sentences={count} are too few for an estimate; take {FEWEST} or more")
    there = list(dict.fromkeys(checked_text_list(sentences)))
    if len(there) < count:
        enough = len(there) >= FEWEST
        less = f", or ask for {FEWEST} to {len(there)} of them, as with --sentences {len(there)}" if enough else ""
        raise InvalidParameter(
            f"the sample has {len(there)} different sentences, {count if enough else FEWEST} are needed; add text to "
            f"it{less}"
        )
    return chosen(there, count, seed)


def chosen(texts: list[str], count: int, seed: int) -> list[str]:
    """So many of the texts, drawn at random, in their order."""
    drawn = np.random.default_rng(seed).choice(len(texts), count, replace=False)
    return [texts[index] for index in np.sort(drawn).tolist()]


def measure(
    model: str | os.PathLike[str] | torch.nn.Module,
    sentences: Iterable[str],
    *,
    count: int = SENTENCES,
    seed: int = 0,
    width: int | None = None,
    tokenizer: Any | None = None,
    batch_tokens: int | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype = "auto",
    revision: str | None = None,
    cache_folder: str | None = None,
    trust_remote_code: bool = False,
    local_files_only: bool = False,
    model_kwargs: dict[str, Any] | None = None,
    show_progress: bool = False,
) -> LayerMeasurement:
    """Find the layers that `kv` may re-route in a model.

    Each sentence is run once in the document prompt of `kv`, without re-routing; its last token's states h[0] ..
    h[L-1] are kept, everything else is let go. The last layer is neither run nor loaded.

    Args:
        model: Name, path or Hugging Face id as for `Embedder`, or a loaded model.
        sentences: Of your own texts.
        count: How many different ones to measure on.
        seed: Of their choice, where there are more.
        width: Layers of the window that a state of low dimension opens; None: as `propose` says.
        tokenizer: The tokenizer of a loaded model (a fast one).
        batch_tokens: As for `Embedder`.
        device: As for `Embedder`, and so are those below.
        dtype: See there.
        revision: See there.
        cache_folder: See there.
        trust_remote_code: See there.
        local_files_only: See there.
        model_kwargs: See there.
        show_progress: Show a bar on long work.

    Raises:
        InvalidParameter: There are too few sentences, or an argument is outside its range.
        InvalidText: A sentence is blank, no string, or not valid Unicode.
        TextTooLong: A sentence exceeds the model's window.
        NotFinite: The model gives NaN or infinity.
        ModelNotFound: No usable model there.
        UnsupportedModel: The model cannot be run exactly.
    """
    named = {"device": torch_name(device), "dtype": torch_name(dtype)}
    check_options({**locals(), **named})
    texts = draw(sentences, count, seed)
    opened = open_model(
        model,
        methods.kv(layers="", exit=-2),
        tokenizer,
        **named,
        revision=revision,
        cache_folder=cache_folder,
        trust_remote_code=trust_remote_code,
        local_files_only=local_files_only,
        model_kwargs=dict(model_kwargs or {}),
        show_progress=show_progress,
    )
    depth = opened.backbone.layers
    propose([1.0] * depth, width)  # a width that is refused should not wait for the pass
    host = host_for(opened)
    check_compatible(host, opened.method)
    planner = planner_for(
        opened, host, max_length=None, overflow="error", instructions={"query": None, "document": None}, language="xx"
    )
    with Progress(show_progress) as bar:
        states = last_states(host, planner, texts, budget(batch_tokens, host.device), bar)
    dimensions, different = [], []
    for level, rows in enumerate(states):
        if not np.isfinite(rows).all():
            raise NotFinite(f"h[{level}] of {opened.name} holds NaN or infinity; load it with dtype='float32'")
        points = different_states(rows)
        different.append(len(points))
        dimensions.append(intrinsic_dimension(points) if len(points) >= FEWEST else math.nan)
    return LayerMeasurement(
        opened.name, depth, count, seed, tuple(dimensions), tuple(different), propose(dimensions, width)
    )


def different_states(rows: NDArray[Any]) -> Doubles:
    """The different states; one where no text reaches the last token, which behind the embedding is always so."""
    points = distinct(rows)
    mean = points.mean(axis=0)
    apart = np.linalg.norm(points - mean, axis=1).max()
    return points[:1] if apart <= ALIKE * np.linalg.norm(mean) else points


def last_states(host: Host, planner: Planner, texts: list[str], batch_tokens: int, bar: Progress) -> NDArray[Any]:
    """Every text's last state behind the embedding and each of M layers that run, shape (M + 1, texts, width)."""
    sequences = [plan.windows[0].sequence for plan in planner.plan(texts, "document")]
    states = torch.empty(
        host.exit_layer + 1, len(texts), host.width, dtype=torch.promote_types(host.dtype, torch.float32)
    )

    def together(batch: list[int]) -> list[int]:
        packed = pack([sequences[index] for index in batch])
        ends = torch.from_numpy(packed.offsets[1:] - 1)
        rows = host.run(packed, range(0), None, layers=tuple(range(len(states))), rows=ends)
        states[:, batch] = rows.reshape(len(batch), len(states), host.width).transpose(0, 1).to(states)
        return batch

    bar.expect(len(texts))
    for batch in passes([len(sequence) for sequence in sequences], batch_tokens, None):
        bar.advance(len(run_halving(together, batch)))
    return states.numpy()
