"""One pass over a sample of sentences, and the intrinsic dimension of their last token's states at every layer."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from eddy_embed.analysis.text_files import read_text_files
from eddy_embed.embedder import Embedder
from eddy_embed.encoding.calibration import FEWEST, MEASURED, dimensions_of, last_states
from eddy_embed.encoding.validation import check_count, checked_text_list
from eddy_embed.errors import InvalidParameter
from eddy_embed.methods.kv import Proposal, propose
from eddy_embed.text.sentences import Segmenter
from eddy_embed.utils.progress import Progress

SENTENCES = 1000
"""Sentences that the paper measures on."""


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
    drawn = np.random.default_rng(seed).choice(len(there), count, replace=False)
    return [there[index] for index in np.sort(drawn).tolist()]


def measure(
    model: str | os.PathLike[str] | torch.nn.Module,
    sentences: Iterable[str],
    *,
    count: int = SENTENCES,
    seed: int = 0,
    width: int | None = None,
    show_progress: bool = False,
    **options: Any,
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
        show_progress: Show a bar on long work.
        **options: Further arguments of `Embedder`, such as `tokenizer`, `device` and `dtype`.

    Raises:
        InvalidParameter: There are too few sentences, or an argument is outside its range.
        InvalidText: A sentence is blank, no string, or not valid Unicode.
        TextTooLong: A sentence exceeds the model's window.
        NotFinite: The model gives NaN or infinity.
        ModelNotFound: No usable model there.
        UnsupportedModel: The model cannot be run exactly, or `kv` does not run on it.
    """
    texts = draw(sentences, count, seed)
    with Embedder(model, MEASURED, overflow="error", language="xx", check=False, **options) as embedder:
        propose([1.0] * embedder.backbone.layers, width)  # a width that is refused should not wait for the pass
        with Progress(show_progress) as bar:
            states = last_states(embedder._pipeline, texts, bar)
        name = embedder.model_name
    dimensions, different = dimensions_of(states)
    return LayerMeasurement(name, len(states), count, seed, dimensions, different, propose(dimensions, width))


def read_sentences(path: Path, *, lines: bool = False, language: str = "en") -> list[str]:
    """Sentences of a file, of all files of a folder and those below it, or of standard input.

    Args:
        path: A .txt or .md file in UTF-8, a folder with such files, or - for standard input. A folder's other files
            are left alone.
        lines: Every line that is not blank is a sentence. False: they are found as in documents.
        language: Language code for sentences.

    Raises:
        InvalidParameter: Nothing that can be read is there.
        InvalidText: A file is not UTF-8.
        OSError: The file cannot be opened.
    """
    segmenter = Segmenter(language)
    found: list[str] = []
    for _, text in read_text_files(path):
        if lines:
            found += [line.strip() for line in text.split("\n") if line.strip()]
        else:
            found += [sentence.text for sentence in segmenter.sentences(text)]
    return found
