"""Attention as a filter over the tokens: sigma_a and the high-frequency share of every layer (TempScale, section 2).

HC[A] = A - 11'A/n is what attention A does beside giving every token the same mean. Its largest singular value sigma_a
bounds what is left of the differences between tokens behind the layer (theorem 2); TempScale finds it falling with the
length of the text (theorem 3), and so the vectors of long texts near each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from eddy_embed.errors import InterventionDidNotRun
from eddy_embed.model.attention import SCORES, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from eddy_embed.model.attention import AttentionSpec, Group
    from eddy_embed.text.sequence import Ints

    Doubles = NDArray[np.float64]

STEPS = 64
"""Most steps towards the largest singular value; each reads the attention once."""
ENOUGH = 1e-7
"""The last step's relative change of its square at which it is found."""


class AttentionBlocks(Protocol):
    """Attention of several heads that is given block by block of queries, as often as asked."""

    def blocks(self) -> Iterator[torch.Tensor]:
        """Blocks of shape (heads, queries, tokens), in their order; all rows together are of shape (tokens, tokens)."""


@dataclass(frozen=True, eq=False)
class FullAttention:
    """Attention that is there, shape (heads, tokens, tokens)."""

    attention: torch.Tensor

    def blocks(self) -> Iterator[torch.Tensor]:
        """The one block."""
        yield self.attention


@dataclass(frozen=True, eq=False)
class Filter:
    """One layer's attention over one text as a filter.

    Attributes:
        sigma: sigma_a of each head, shape (heads,).
        share: Share of each head's attention, as energy, that is not the mean over its queries, shape (heads,).
    """

    sigma: Doubles
    share: Doubles

    @classmethod
    def of(cls, attention: AttentionBlocks) -> Filter:
        """The filter that attention is; no more of it than a block is held."""
        mean, energy = _means(attention)
        length = mean.shape[1]
        share = 1 - length * mean.square().sum(1) / energy
        # What is left of attention that is even is rounding.
        share = torch.where(share > length * torch.finfo(torch.float64).eps, share, torch.zeros_like(share))
        return cls(_largest(attention, mean).cpu().numpy(), share.cpu().numpy())


@dataclass(frozen=True)
class UniformAttention:
    """Attention of one head that pays alike to every token up to its own, for so many tokens."""

    tokens: int

    def blocks(self) -> Iterator[torch.Tensor]:
        """Its blocks."""
        seen = torch.arange(self.tokens)
        for rows in torch.split(seen, max(1, SCORES // self.tokens)):
            yield ((seen <= rows[:, None]) / (rows[:, None] + 1.0)).unsqueeze(0)


def _means(attention: AttentionBlocks) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean over the queries, shape (heads, tokens), and energy, shape (heads,), in float64."""
    total: torch.Tensor | None = None
    energy: torch.Tensor | None = None
    for block in attention.blocks():
        exact = block.double()
        sums, squares = exact.sum(1), exact.square().sum((1, 2))
        total = sums if total is None else total + sums
        energy = squares if energy is None else energy + squares
    if total is None or energy is None:
        raise InterventionDidNotRun("attention without a block was to be measured")
    return total / total.shape[1], energy


def _largest(attention: AttentionBlocks, mean: torch.Tensor) -> torch.Tensor:
    """Largest singular value of attention minus its mean over the queries, for each head, shape (heads,).

    Lanczos' iteration on the square, all heads at once, with all vectors kept orthogonal.
    """
    heads, length = mean.shape
    vector = torch.from_numpy(np.random.default_rng(0).standard_normal(length)).to(mean).expand(heads, -1)
    basis = [vector / vector.norm(dim=1, keepdim=True)]
    diagonal: list[torch.Tensor] = []
    beside: list[torch.Tensor] = []
    found = mean.new_zeros(heads)
    for _ in range(min(STEPS, length)):
        after = _squared(attention, mean, basis[-1])
        diagonal.append((after * basis[-1]).sum(1))
        spanned = torch.stack(basis, dim=1)
        for _ in range(2):
            # Once more takes out what rounding left.
            after = after - (spanned.transpose(1, 2) @ (spanned @ after.unsqueeze(-1))).squeeze(-1)
        before, found = found, _top(diagonal, beside)
        size = after.norm(dim=1)
        # A space that the square does not leave holds nothing more; its next vector is one of zeros.
        ended = size <= 1e-12 * found.clamp(min=torch.finfo(torch.float64).tiny)
        if bool(((found - before).abs() <= ENOUGH * found).all()) or bool(ended.all()):
            break
        beside.append(torch.where(ended, torch.zeros_like(size), size))
        basis.append(torch.where(ended[:, None], torch.zeros_like(after), after / size.clamp(min=1e-300)[:, None]))
    return found.clamp(min=0).sqrt()


def _squared(attention: AttentionBlocks, mean: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """(A - 11'A/n)'(A - 11'A/n) v for each head, shape (heads, tokens), one block after the other."""
    after = torch.zeros_like(vector)
    for block in attention.blocks():
        apart = block.double() - mean.unsqueeze(1)
        after += (apart.transpose(1, 2) @ (apart @ vector.unsqueeze(-1))).squeeze(-1)
    return after


def _top(diagonal: list[torch.Tensor], beside: list[torch.Tensor]) -> torch.Tensor:
    """Largest eigenvalue of tridiagonal matrices, shape (heads,)."""
    matrix = torch.diag_embed(torch.stack(diagonal, dim=1))
    if beside:
        off = torch.stack(beside[: len(diagonal) - 1], dim=1)
        matrix = matrix + torch.diag_embed(off, offset=1) + torch.diag_embed(off, offset=-1)
    values: torch.Tensor = torch.linalg.eigvalsh(matrix)
    return values[:, -1]


class Spectra:
    """Watches a pass over one text, and keeps of every layer its filter and what went to further entries.

    Attributes:
        filters: Of every layer that ran.
        entries: By layer, counted from 1, what each query pays to the re-routed entries, the mean over the heads, shape
            (tokens,); layers without entries are not there.
    """

    def __init__(self, *, filters: bool = True) -> None:
        """Nothing seen yet.

        Args:
            filters: Whether filters are wanted; entries cost nothing.
        """
        self.filters: list[Filter] = []
        self.entries: dict[int, Doubles] = {}
        self._wanted = filters
        self._layer = 0

    def begin(self, groups: Sequence[Group], offsets: Ints) -> None:
        """A pass begins.

        Raises:
            InterventionDidNotRun: It has more than one text.
        """
        if len(groups) != 1 or len(offsets) != 2:
            raise InterventionDidNotRun(f"attention is measured one text at a time, the pass has {len(offsets) - 1}")
        self.filters, self.entries, self._layer = [], {}, 0

    def see(
        self,
        number: int,
        query: torch.Tensor,
        key: torch.Tensor,
        lse: torch.Tensor,
        members: Group,
        spec: AttentionSpec,
        bias: torch.Tensor | None,
        paid: torch.Tensor | None,
    ) -> None:
        """Measure one layer; see `eddy_embed.model.attention.AttentionWatcher`."""
        self._layer += 1
        if paid is not None:
            self.entries[self._layer] = paid[0].double().mean(0).cpu().numpy()
        if self._wanted:
            rows = Rows(query[0], key[0], lse[0], spec, members.factor, bias)
            one = rows.step >= query.shape[2]
            self.filters.append(Filter.of(FullAttention(next(rows.blocks())) if one else rows))
