"""The readout: which hidden states become a vector, and how much each token weighs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from eddy_embed.errors import InvalidParameter
from eddy_embed.text.sequence import Role, TokenSequence
from eddy_embed.utils.arrays import Doubles, Ints
from eddy_embed.utils.checks import check_choice, check_count

if TYPE_CHECKING:
    import torch


ZIPF, OFFSET = 0.1, 2.7
"""Of Zipf's law in Mandelbrot's form: the word of rank r has the frequency 0.1 / (r + 2.7)."""


@dataclass(frozen=True)
class TokenWeights:
    """Smooth inverse frequency: a token of frequency p weighs a / (a + p) (Arora, Liang and Ma 2017, algorithm 1).

    Frequencies follow Zipf's law over ranks, so that no text has to be counted.

    Attributes:
        a: Frequency at which a token weighs half.

    Raises:
        InvalidParameter: `a` is not above 0.
    """

    a: float = 3e-5

    def __post_init__(self) -> None:
        if not 0 < self.a < float("inf"):
            raise InvalidParameter(f"sif: a={self.a} must be a number above 0, such as 3e-5")

    def of(self, ranks: Ints) -> Doubles:
        """Return the weight of each token of a vocabulary, from its rank by frequency, shape (tokens,)."""
        return np.asarray(self.a / (self.a + ZIPF / (ranks + OFFSET)))


def weighed(weights: Doubles, ids: Ints, table: Doubles) -> Doubles:
    """Return positions' weights times those of their tokens, shape (positions,); placeholders weigh 1."""
    return weights * np.where(ids < 0, 1.0, table[ids])


@dataclass(frozen=True)
class EmbedFilter:
    """Vectors without the directions of the largest singular values of the model's token embeddings.

    After EmbedFilter (arXiv 2606.07502), which takes the unembedding matrix: the same matrix in models that tie the
    two, and not loaded in the others. Vectors keep their width.

    Attributes:
        drop: Number of directions taken out.

    Raises:
        InvalidParameter: `drop` is below 1.
    """

    drop: int = 16

    def __post_init__(self) -> None:
        check_count("filter: drop", self.drop)

    def directions(self, table: Doubles, width: int) -> Doubles:
        """Return orthonormal directions, shape (width, drop), of token embeddings, shape (tokens, width).

        Raises:
            InvalidParameter: The model's states have another width, or no direction would be left.
        """
        if table.shape[1] != width:
            raise InvalidParameter(
                f"filter: the token embeddings have width {table.shape[1]}, and the states {width}; leave filter out"
            )
        if self.drop >= width:
            raise InvalidParameter(f"filter: drop={self.drop} must be below the vectors' width of {width}")
        _, axes = np.linalg.eigh(table.T @ table)
        return np.asarray(axes[:, width - self.drop :])


Pool = Literal["mean", "last", "hybrid", "weighted", "cls"]


@dataclass(frozen=True)
class Readout:
    """Where vectors are read.

    Attributes:
        exit: Layer M whose output h[M] is read, counted over h[0] .. h[L] as Python counts: -1 is h[L]. None: the
            backbone's default, filled in before anything runs.
        pool: "mean" over the text's tokens, "last" token of the sequence, "hybrid" (half of each), "weighted"
            (mean with weights 1, 2, 3 ..; SGPT, Muennighoff 2022) or "cls", the first token of the sequence. None: the
            pooling that the model was trained with, or the mean; filled in before anything runs.
        placeholders: Whether the mean also covers placeholders (HTP, section 4.4 read literally).
        prompt: Whether the mean also covers the prompt around the text, an instruction included (KV-Embedding).
        end: Whether the mean also covers the sequence's end token (Echo as released).
        text_end: Whether "last" is the last token of the text that is read instead of the sequence's.
        half: Whether the mean covers the first half of the sequence instead, whatever it holds (ReBA as released).
        specials: Whether the mean also covers the tokenizer's specials; those before a prompt only with the prompt.

    Raises:
        InvalidParameter: `pool` is unknown.
    """

    exit: int | None = -1
    pool: Pool | None = "mean"
    placeholders: bool = False
    prompt: bool = False
    end: bool = False
    text_end: bool = False
    half: bool = False
    specials: bool = False

    def __post_init__(self) -> None:
        if self.pool is not None:
            check_choice("pool", self.pool, get_args(Pool))

    @property
    def spans(self) -> bool:
        """Whether parts of a text can be read out of a pass over the whole, as means over their tokens.

        False for a subclass with `weights` of its own, unless it overrides this.
        """
        return self.pool in (None, "mean", "weighted") and type(self).weights is Readout.weights

    def layer(self, layers: int) -> int:
        """Return the exit layer M of a model, 0 <= M <= `layers`; InvalidParameter if there is none."""
        assert self.exit is not None, "resolve the method for a backbone first"
        exit_layer = self.exit if self.exit >= 0 else self.exit + layers + 1
        if not 0 <= exit_layer <= layers:
            raise InvalidParameter(
                f"exit={self.exit} is outside a model of {layers} layers; choose {-layers - 1} .. {layers}"
            )
        return exit_layer

    def weights(self, sequence: TokenSequence, counted: Ints) -> tuple[Ints, NDArray[np.float64]]:
        """Return positions to read and their weights, which sum to 1.

        Args:
            sequence: The sequence read.
            counted: Positions of the text tokens that this sequence accounts for, in order.

        Returns:
            Positions and weights, both of shape (positions,).
        """
        last = sequence.text[-1:] if self.text_end else np.array([len(sequence) - 1], np.int64)
        if self.pool == "last":
            return last, np.ones(1)
        if self.pool == "cls":
            return np.zeros(1, np.int64), np.ones(1)
        if self.half:
            counted = np.arange(max(len(sequence) // 2, 1))
        if self.placeholders:
            extra = np.flatnonzero((sequence.roles == Role.PST) | (sequence.roles == Role.BPST))
            counted = np.sort(np.concatenate([counted, extra]))
        prompt = np.flatnonzero(sequence.roles == Role.PROMPT)
        if self.prompt:
            counted = np.sort(np.concatenate([counted, prompt]))
        if self.specials:
            extra = np.flatnonzero(sequence.roles == Role.SPECIAL)
            extra = extra if self.prompt or not len(prompt) else extra[extra > prompt[0]]
            counted = np.sort(np.concatenate([counted, extra]))
        if self.end:
            counted = np.append(counted, last)
        if self.pool == "weighted":
            ranks = np.arange(1, len(counted) + 1, dtype=np.float64)
            return counted, ranks / ranks.sum()
        share = np.full(len(counted), 1 / len(counted))
        if self.pool == "mean":
            return counted, share
        return np.concatenate([counted, last]), np.append(share / 2, 0.5)


@dataclass(frozen=True)
class LayerMean:
    """The states of several layers in one vector.

    Attributes:
        count: Number of layers averaged token by token: the exit layer and those right below it.
        below: Layers, in rising order, that are pooled each by itself, as the exit layer is. The vectors are brought
            to length 1 and averaged, since states of an upper layer are many times as long as those of a lower one.

    Raises:
        InvalidParameter: `count` is below 1.
    """

    count: int = 1
    below: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_count("count", self.count)

    def layers(self, exit_layer: int) -> tuple[int, ...]:
        """Return the layers averaged if `exit_layer` is read; InvalidParameter if there are too few."""
        if self.below:
            if exit_layer <= self.below[-1]:
                shown = ",".join(map(str, self.below))
                raise InvalidParameter(f"layeravg: layers={shown} is not below exit={exit_layer}; choose a later exit")
            return *self.below, exit_layer
        if exit_layer < self.count - 1:
            raise InvalidParameter(
                f"the mean of {self.count} layers needs {self.count - 1} below the exit, which is layer {exit_layer}; "
                "choose a later exit"
            )
        return tuple(range(exit_layer - self.count + 1, exit_layer + 1))

    @property
    def apart(self) -> int:
        """Number of vectors that are pooled apart."""
        return len(self.below) + 1


def gather(hidden: torch.Tensor, index: torch.Tensor, weight: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Sum weighted states, shape (tokens, width), over runs of positions: shape (runs, width), in float32 or 64.

    `index` and `weight` hold the positions of all runs, `lengths` the number in each. Every run is summed by itself and
    in order, so that its value does not depend on its neighbours.
    """
    import torch

    dtype = torch.promote_types(hidden.dtype, torch.float32)
    read = hidden.index_select(0, index).to(dtype) * weight.to(dtype).unsqueeze(1)
    # `unsafe`: the check that the lengths are those of the runs would wait for the device.
    return torch.segment_reduce(read, "sum", lengths=lengths, axis=0, unsafe=True)
