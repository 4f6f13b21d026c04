"""Extra entries (keys and values), merged into finished attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from eddy_embed.model.attention.blocked import capped
from eddy_embed.model.attention.groups import Group
from eddy_embed.model.attention.spec import AttentionSpec
from eddy_embed.parts.attention import ExtraKeyValues


@dataclass(frozen=True, eq=False)
class Angles:
    """Cosines and sines by which a layer turns its keys, as the model itself computed them, scaling included.

    Attributes:
        cos: At the packed tokens' positions, shape (tokens, rotary width); the two halves are alike.
        sin: The same of the sines.
        back_cos: At positions -1, -2 .., shape (entries, rotary width).
        back_sin: The same of the sines.
    """

    cos: torch.Tensor
    sin: torch.Tensor
    back_cos: torch.Tensor
    back_sin: torch.Tensor

    def rebased(self, key: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Keys, shape (sequences, key-value heads, entries, head width), turned to positions -1, -2 ..

        `tokens` are their indices among the packed tokens, shape (sequences, entries). Dividing by cos^2 + sin^2 undoes
        the model's own rotation up to its rounding, whatever it scales by.
        """
        half = self.cos.shape[-1] // 2
        cos, sin = (angle.to(key)[tokens][:, None, :, :half] for angle in (self.cos, self.sin))
        back_cos, back_sin = (angle.to(key)[:, :half] for angle in (self.back_cos, self.back_sin))
        one, other, rest = key[..., :half], key[..., half : 2 * half], key[..., 2 * half :]
        norm = cos * cos + sin * sin
        one, other = (one * cos + other * sin) / norm, (other * cos - one * sin) / norm
        turned = (one * back_cos - other * back_sin, other * back_cos + one * back_sin, rest)
        return torch.cat(turned, dim=-1)


def entry_keys(
    key: torch.Tensor, members: Group, entries: int, angles: Angles | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys of each sequence's last tokens, turned by `angles` if given, and their columns, the last token first.

    Shapes (sequences, key-value heads, entries, head width) and (sequences, entries). Columns are negative where a
    sequence is too short.
    """
    columns = members.last[:, None] - torch.arange(entries, device=key.device)
    index = columns.clamp(min=0)
    keys = key.gather(2, index[:, None, :, None].expand(-1, key.shape[1], -1, key.shape[3]))
    if angles is not None:
        keys = angles.rebased(keys.to(torch.promote_types(key.dtype, torch.float32)), members.rows.gather(1, index))
    return keys, columns


def with_entries(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    angles: Angles | None,
    members: Group,
    spec: AttentionSpec,
    reroute: ExtraKeyValues,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Merge the entries of each sequence's last tokens into finished attention, exactly.

    A softmax over more entries is the old one and the new entries, each weighted by its share of the whole denominator;
    no mask, and no longer matrix, is needed (KV-Embedding, equations 1 and 2).

    Returns:
        Attention, and its log-sum-exp, shape (sequences, heads, tokens).
    """
    batch, heads, length, width = query.shape
    shared = key.shape[1]
    k, columns = entry_keys(key, members, reroute.entries, angles)
    k = k.unsqueeze(2).to(lse.dtype) * spec.scale
    index = columns.clamp(min=0)[:, None, :, None]
    v = value.gather(2, index.expand(-1, shared, -1, value.shape[3])).unsqueeze(2).to(lse.dtype)
    q = query.reshape(batch, shared, heads // shared, length, width).to(lse.dtype)
    scores = capped(q @ k.transpose(-1, -2), spec) * members.factor + reroute.bias
    # Sequences with fewer tokens than entries have an entry for each token.
    scores = scores.masked_fill((columns < 0)[:, None, None, None, :], float("-inf")).flatten(1, 2)
    whole = torch.logaddexp(lse, scores.logsumexp(-1))
    shares = torch.exp(scores - whole.unsqueeze(-1))
    if reroute.entries == 1:  # the shares of old and new add up to 1, and one pass over the states merges them
        single = v.expand(-1, -1, heads // shared, -1, -1).flatten(1, 2)
        return torch.lerp(out.to(lse.dtype), single, shares).to(query.dtype), whole
    kept = torch.exp(lse - whole).unsqueeze(-1)
    added = (shares.view(batch, shared, heads // shared, length, -1) @ v).flatten(1, 2)
    return (out.to(lse.dtype) * kept + added).to(query.dtype), whole
