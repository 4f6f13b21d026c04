"""Further entries, merged into finished attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from eddy_embed.model.attention.blocked import capped
from eddy_embed.model.attention.groups import Group
from eddy_embed.model.attention.traits import AttentionSpec
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
        """Keys of tokens turned from where they stand to positions -1, -2 ..

        Dividing by cos^2 + sin^2 undoes what the model did to the bit of its own rounding, whatever it scales by.

        Args:
            key: Shape (sequences, key-value heads, entries, head width).
            tokens: Their indices among the packed tokens, shape (sequences, entries).
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
    """Keys of each sequence's last tokens, and their columns, negative where a sequence is too short.

    Args:
        key: Shape (sequences, key-value heads, tokens, head width).
        members: The sequences.
        entries: How many.
        angles: To turn them by, None to leave them where they are.

    Returns:
        Shapes (sequences, key-value heads, entries, head width) and (sequences, entries); the last token first.
    """
    columns = members.last[:, None] - torch.arange(entries, device=key.device)
    at = columns.clamp(min=0)
    found = key.gather(2, at[:, None, :, None].expand(-1, key.shape[1], -1, key.shape[3]))
    if angles is not None:
        found = angles.rebased(found.to(torch.promote_types(key.dtype, torch.float32)), members.rows.gather(1, at))
    return found, columns


def with_entries(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    mass: torch.Tensor,
    angles: Angles | None,
    members: Group,
    traits: AttentionSpec,
    reroute: ExtraKeyValues,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Merge the entries of each sequence's last tokens into finished attention, exactly; the mass is then theirs too.

    A softmax over more entries is the old one and the new entries, each weighted by its share of the whole mass; no
    mask, and no longer matrix, is needed (KV-Embedding, equations 1 and 2).

    Returns:
        Attention, mass, and what each row pays to all of its entries, shape (sequences, heads, tokens).
    """
    batch, heads, length, width = query.shape
    shared = key.shape[1]
    k, columns = entry_keys(key, members, reroute.entries, angles)
    k = k.unsqueeze(2).to(mass.dtype) * traits.scale
    at = columns.clamp(min=0)[:, None, :, None]
    v = value.gather(2, at.expand(-1, shared, -1, value.shape[3])).unsqueeze(2).to(mass.dtype)
    q = query.reshape(batch, shared, heads // shared, length, width).to(mass.dtype)
    scores = capped(q @ k.transpose(-1, -2), traits) * members.factor + reroute.bias
    # Sequences with fewer tokens than entries bring as many as they have.
    scores = scores.masked_fill((columns < 0)[:, None, None, None, :], float("-inf")).flatten(1, 2)
    whole = torch.logaddexp(mass, scores.logsumexp(-1))
    shares = torch.exp(scores - whole.unsqueeze(-1))
    if reroute.entries == 1:  # the shares of old and new add up to 1, and one pass over the states merges them
        single = v.expand(-1, -1, heads // shared, -1, -1).flatten(1, 2)
        return torch.lerp(out.to(mass.dtype), single, shares).to(query.dtype), whole, shares.squeeze(-1)
    kept = torch.exp(mass - whole).unsqueeze(-1)
    added = (shares.view(batch, shared, heads // shared, length, -1) @ v).flatten(1, 2)
    return (out.to(mass.dtype) * kept + added).to(query.dtype), whole, shares.sum(-1)
