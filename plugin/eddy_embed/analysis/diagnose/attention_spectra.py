"""Attention as a filter over the tokens: sigma_a and the high-frequency share of every layer (TempScale, section 2).

HC[A] = A - 11'A/n is what attention A does beside giving every token the same mean. Its largest singular value sigma_a
bounds what is left of the differences between tokens behind the layer (theorem 2); TempScale finds it falling with the
length of the text (theorem 3), and so the vectors of long texts near each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from eddy_embed.errors import InterventionDidNotRun
from eddy_embed.model.attention import SCORES, AttentionSpec, Group, Rows
from eddy_embed.utils.arrays import Doubles, Ints

STEPS = 64
"""Most steps towards the largest singular value; each reads the attention once."""
ENOUGH = 1e-7
"""The last step's relative change of its square at which it is found."""

Blocks = Callable[[], Iterable[torch.Tensor]]
"""Gives attention of several heads, as often as asked, in blocks of queries in their order, shape (heads, queries,
tokens); all rows together are of shape (tokens, tokens)."""


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
    def of(cls, blocks: Blocks) -> Filter:
        """The filter that attention is; no more of it than a block is held."""
        total: Any = 0.0
        energy: Any = 0.0
        for block in blocks():
            exact = block.double()
            total, energy = total + exact.sum(1), energy + exact.square().sum((1, 2))
        length = total.shape[1]
        mean = total / length
        share = 1 - length * mean.square().sum(1) / energy
        # What is left of attention that is even is rounding.
        share = torch.where(share > length * torch.finfo(torch.float64).eps, share, torch.zeros_like(share))
        return cls(_largest(blocks, mean).cpu().numpy(), share.cpu().numpy())


def uniform_attention(tokens: int) -> Iterator[torch.Tensor]:
    """Blocks of uniform causal attention, for one head."""
    seen = torch.arange(tokens)
    for rows in torch.split(seen, max(1, SCORES // tokens)):
        yield ((seen <= rows[:, None]) / (rows[:, None] + 1.0)).unsqueeze(0)


def _largest(blocks: Blocks, mean: torch.Tensor) -> torch.Tensor:
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
        after = _squared(blocks, mean, basis[-1])
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


def _squared(blocks: Blocks, mean: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """(A - 11'A/n)'(A - 11'A/n) v for each head, shape (heads, tokens), one block after the other."""
    after = torch.zeros_like(vector)
    for block in blocks():
        apart = block.double() - mean.unsqueeze(1)
        after += (apart.transpose(1, 2) @ (apart @ vector.unsqueeze(-1))).squeeze(-1)
    return after


def _top(diagonal: list[torch.Tensor], beside: list[torch.Tensor]) -> torch.Tensor:
    """Largest eigenvalue of tridiagonal matrices, shape (heads,)."""
    matrix = torch.diag_embed(torch.stack(diagonal, dim=1))
    if beside:
        off = torch.stack(beside, dim=1)
        matrix = matrix + torch.diag_embed(off, offset=1) + torch.diag_embed(off, offset=-1)
    values: torch.Tensor = torch.linalg.eigvalsh(matrix)
    return values[:, -1]


class Spectra:
    """An `eddy_embed.model.attention.AttentionWatcher` that measures a pass over one text.

    Attributes:
        filters: Of every layer that ran, where they are wanted; entries cost nothing.
        entries: By layer, counted from 1, what each query pays to the re-routed entries, the mean over the heads, shape
            (tokens,); layers without entries are not there.
    """

    last_layer_only = False

    def __init__(self, *, filters: bool = True) -> None:
        self.filters: list[Filter] = []
        self.entries: dict[int, Doubles] = {}
        self._wanted = filters
        self._layer = 0

    def begin(self, groups: Sequence[Group], offsets: Ints) -> None:
        """Refuse a pass of more than one text."""
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
        """Measure one layer."""
        self._layer += 1
        if paid is not None:
            self.entries[self._layer] = paid[0].double().mean(0).cpu().numpy()
        if self._wanted:
            rows = Rows(query[0], key[0], lse[0], spec, members.factor, bias)
            # Attention that is one block is computed once, and not again in every step.
            blocks = partial(iter, list(rows.blocks())) if rows.step >= query.shape[2] else rows.blocks
            self.filters.append(Filter.of(blocks))
