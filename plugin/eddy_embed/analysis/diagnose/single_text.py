"""What happens inside passes over single texts: attention as a filter, re-routed entries, gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from eddy_embed.analysis.diagnose.attention_spectra import Spectra
from eddy_embed.analysis.diagnose.geometry import high_share
from eddy_embed.analysis.diagnose.sensitivity import probes, sensitivity
from eddy_embed.encoding.pipeline import Pipeline
from eddy_embed.errors import InvalidParameter, UnsupportedModel
from eddy_embed.text.sequence import Sequence
from eddy_embed.utils.arrays import Doubles, Ints
from eddy_embed.utils.memory import out_of_memory


@dataclass(frozen=True, eq=False)
class SingleTextDiagnosis:
    """One pass over one text.

    Attributes:
        tokens: Length of its sequence.
        sigma: sigma_a by layer, the mean over heads.
        share: High-frequency share of attention by layer, the mean over heads.
        states: High-frequency share of the states that were read, by layer.
        entries: By layer, what the text's tokens pay to the re-routed entries, shape (tokens of the text,).
        sees: Number of tokens that each of these sees, itself included.
    """

    tokens: int
    sigma: Doubles
    share: Doubles
    states: Doubles
    entries: dict[int, Doubles]
    sees: Ints


class EntryEffect(NamedTuple):
    """How much each token of one text moves the mean over the text's tokens, and the last token, shape (tokens,)."""

    mean: Doubles
    last: Doubles


def laid_out(pipeline: Pipeline, text: str) -> Sequence:
    """The first sequence that a text becomes: of its first window, and of the first wording where there are several."""
    (plan,) = pipeline.planner.plan([text], "document")
    return plan.windows[0].sequence


def see(pipeline: Pipeline, text: str, *, filters: bool = True) -> SingleTextDiagnosis:
    """Watch attention over a text's first window, as a filter or for the re-routed entries alone."""
    runner = pipeline.open_runner
    runner.host.check_attention_reachable(["a watch"])
    layers = tuple(range(runner.host.exit_layer + 1))
    try:
        runner = runner.at_layers(layers)
    except InvalidParameter:
        layers = (runner.host.exit_layer,)
    sequence = laid_out(pipeline, text)
    watch = Spectra(filters=filters)
    hidden, _ = runner.hidden([sequence], "document", watch)
    states = hidden.double().cpu().numpy().reshape(len(sequence), len(layers), -1)
    own = sequence.text
    return SingleTextDiagnosis(
        tokens=len(sequence),
        sigma=np.array([each.sigma.mean() for each in watch.filters]),
        share=np.array([each.share.mean() for each in watch.filters]),
        states=np.array([high_share(states[:, at]) for at in range(len(layers))]),
        entries={layer: paid[own] for layer, paid in watch.entries.items()},
        sees=own + 1,
    )


def moved(pipeline: Pipeline, text: str, count: int) -> EntryEffect:
    """Gradients at the method's exit over a text's first window, along so many directions of the readout.

    Raises:
        UnsupportedModel: Gradients do not pass through the model.
        MemoryError: They do not fit in memory.
    """
    runner = pipeline.open_runner
    sequence = laid_out(pipeline, text)
    leaves: list[torch.Tensor] = []
    own = torch.from_numpy(sequence.text)
    try:
        hidden, _ = runner.hidden([sequence], "document", leaves=leaves)
        states = hidden.float() if hidden.dtype in (torch.float16, torch.bfloat16) else hidden
        directions = probes(states.shape[1], count)
        readouts = (states[own.to(states.device)].mean(0), states[-1])
        mean, last = (sensitivity(readout, leaves[0], directions) for readout in readouts)
    except (MemoryError, RuntimeError) as error:
        if out_of_memory(error):
            raise MemoryError(f"gradients over {len(sequence)} tokens do not fit in memory; take fewer") from error
        raise UnsupportedModel(f"{runner.host.name} gives no gradients: {error}") from error
    return EntryEffect(mean[sequence.text], last[sequence.text])
