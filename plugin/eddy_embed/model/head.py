"""The output head of a language model: scores of the vocabulary, from states that a view has computed."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPast

from eddy_embed.errors import UnsupportedModel
from eddy_embed.model.host import TRIED, ModelView
from eddy_embed.model.self_check import state_difference
from eddy_embed.model.view import find_layers, trial, view_of
from eddy_embed.text.sequence import pack, without_placeholders

VALUES = 2**25
"""Most scores of the vocabulary that are held at once."""

_given: ContextVar[torch.Tensor] = ContextVar("eddy_states")


class LanguageModelHead:
    """What a language model does with its last hidden states, whatever its class: its own forward, given states."""

    def __init__(self, model: nn.Module, host: ModelView) -> None:
        """Make the head of a model whose layers a host runs, and compare its scores with the model's own.

        Args:
            model: A transformers model with its language-model head.
            host: The same model, up to its last layer.

        Raises:
            UnsupportedModel: The model has no such head, or the head cannot be run by itself.
        """
        whole: Any = model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator]
        if getattr(whole, "get_output_embeddings", lambda: None)() is None:
            raise UnsupportedModel(
                f"{type(whole).__name__} has no language-model head, so it gives no probabilities of words; load it "
                "with AutoModelForCausalLM, or name a causal language model"
            )
        self._name, self._device = type(whole).__name__, host.device
        with trial(whole):
            self._view = view_of(whole).eval()
            ids = np.arange(TRIED) * 7919 % int(self._view.config.vocab_size)
            with torch.inference_mode():
                own = self._view(input_ids=torch.from_numpy(ids)[None].to(host.device), use_cache=False).logits[0]
            base = self._view.base_model
            stack = find_layers(base)
            for module in list(base.modules()):
                if any(part is stack for part in module.modules()) and module is not stack:
                    module.forward = _states_given  # whichever of these the model's forward calls
            ours = self.scores(host.run(pack([without_placeholders(ids)]), range(0), None))
        difference = state_difference(ours, own, host.tolerance)
        if ours.shape != own.shape or not difference <= host.tolerance:
            raise UnsupportedModel(
                f"{self._name}: its head, run by itself, differs from the model by {difference:.2g} (allowed "
                f"{host.tolerance:.0e}); it is not supported"
            )

    def scores(self, states: torch.Tensor) -> torch.Tensor:
        """Return logits of the vocabulary, shape (rows, vocabulary), from states of shape (rows, width)."""
        token = _given.set(states[None])
        try:
            with torch.inference_mode():
                ids = torch.zeros((1, len(states)), dtype=torch.long, device=self._device)
                scores: torch.Tensor = self._view(input_ids=ids, use_cache=False).logits[0]
                return scores
        finally:
            _given.reset(token)

    def log_probabilities(self, states: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Return log-probability of a token after each state, float32, shape (rows,); states of shape (rows, width)."""
        parts, rows = [], max(VALUES // int(self._view.config.vocab_size), 1)
        for part, following in zip(torch.split(states, rows), torch.split(ids, rows), strict=True):
            scores = self.scores(part).float()
            parts.append(scores.gather(1, following.to(scores.device)[:, None])[:, 0] - scores.logsumexp(1))
        return torch.cat(parts)


class _Output(BaseModelOutputWithPast):
    """What a base returns: its states, and None for all else that it may have, such as its routers' choices."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def _states_given(*_: Any, **__: Any) -> _Output:
    return _Output(last_hidden_state=_given.get())
