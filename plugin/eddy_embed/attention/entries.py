"""Further entries, merged into finished attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddy_embed.attention.blocked import capped

if TYPE_CHECKING:
    import torch

    from eddy_embed.attention.groups import Group
    from eddy_embed.attention.settings import Reroute, Traits


def with_entries(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    mass: torch.Tensor,
    members: Group,
    traits: Traits,
    reroute: Reroute,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Merge the entries of each sequence's last tokens into finished attention and its mass, exactly.

    A softmax over more entries is the old one and the new entries, each weighted by its share of the whole mass; no
    mask, and no longer matrix, is needed (KV-Embedding, equations 1 and 2).
    """
    import torch

    exact = mass.dtype
    batch, heads, length, width = query.shape
    shared = key.shape[1]
    back = torch.arange(reroute.entries, device=query.device)
    columns = members.last[:, None] - back
    at = columns.clamp(min=0)[:, None, :, None]
    k = key.gather(2, at.expand(-1, shared, -1, key.shape[3])).unsqueeze(2).to(exact)
    v = value.gather(2, at.expand(-1, shared, -1, value.shape[3])).unsqueeze(2).to(exact)
    q = query.reshape(batch, shared, heads // shared, length, width).to(exact) * traits.scale
    scores = capped(q @ k.transpose(-1, -2), traits) * members.factor + reroute.bias
    # Sequences with fewer tokens than entries bring as many as they have.
    scores = scores.masked_fill((columns < 0)[:, None, None, None, :], float("-inf")).flatten(1, 2)
    whole = torch.logaddexp(mass, scores.logsumexp(-1))
    kept = torch.exp(mass - whole).unsqueeze(-1)
    shares = torch.exp(scores - whole.unsqueeze(-1)).view(batch, shared, heads // shared, length, -1)
    return (out.to(exact) * kept + (shares @ v).flatten(1, 2)).to(query.dtype), whole
