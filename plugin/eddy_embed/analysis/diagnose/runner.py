"""A model and a method on texts of the user's: everything measured, in the order of the report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from eddy_embed import __version__, methods
from eddy_embed.analysis.diagnose.attention_spectra import Filter, uniform_attention
from eddy_embed.analysis.diagnose.geometry import alignment, distance_to, mean_cosine, principal, uniformity
from eddy_embed.analysis.diagnose.layer_vectors import TOGETHER, read
from eddy_embed.analysis.diagnose.results import (
    CollapseSide,
    Diagnosis,
    Entries,
    LayerSpectrum,
    LengthCurve,
    Sensitivity,
)
from eddy_embed.analysis.diagnose.sampling import Sample, by_cutting, by_length, drawn
from eddy_embed.analysis.diagnose.sensitivity import by_place, evenness
from eddy_embed.analysis.diagnose.single_text import EntryEffect, SingleTextDiagnosis, laid_out, moved, see
from eddy_embed.analysis.layers import FEWEST, different_states, intrinsic_dimension
from eddy_embed.embedder import Embedder
from eddy_embed.encoding.collapse import TokenNorms, dimension_share, nearest_share, sinks
from eddy_embed.encoding.collapse import read as read_tokens
from eddy_embed.encoding.pipeline import Counts, Pipeline
from eddy_embed.encoding.runner import Runner
from eddy_embed.encoding.validation import check_count, checked_texts
from eddy_embed.errors import EddyError, InvalidParameter
from eddy_embed.methods.method import Method
from eddy_embed.methods.tempscale import TAU
from eddy_embed.utils.arrays import Doubles, Floats, Ints

Step = Callable[[str, int, int], None]
"""Called with the current stage, the finished count and the total."""
EXAMPLE = 24
"""Approximate number of tokens in the example text."""
PLACES = 20
"""Places of a text, from its beginning to its end, over which curves are drawn."""


@dataclass(frozen=True)
class Extent:
    """Limits on how much a diagnosis measures.

    Attributes:
        texts: Most texts; where there are more, as many are drawn.
        bins: Bins of length.
        lengths: Lengths in tokens to which texts are cut instead; empty: they stay whole.
        attention: Texts of each bin whose attention is watched.
        gradients: Texts through which gradients are taken.
        tokens: Tokens to which these are cut.
        probes: Directions of the readout that gradients are taken along.
        seed: Of the choice of texts.
    """

    texts: int = 500
    bins: int = 5
    lengths: tuple[int, ...] = ()
    attention: int = 4
    gradients: int = 8
    tokens: int = 96
    probes: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse counts below 1."""
        for name in ("texts", "bins", "attention", "gradients", "tokens", "probes"):
            check_count(name, getattr(self, name))


def diagnose(
    model: str | os.PathLike[str] | torch.nn.Module,
    texts: Iterable[str],
    *,
    method: str | Method,
    pairs: Sequence[tuple[str, str]] = (),
    tau: float = TAU,
    extent: Extent | None = None,
    step: Step = lambda *_: None,
    **options: Any,
) -> Diagnosis:
    """Look at what a method makes of texts, and at what happens inside the model.

    Args:
        model: Name, path or Hugging Face id as for `Embedder`, or a loaded model.
        texts: Two different ones or more.
        method: Text form or Method. With a temperature of its own, it is compared with itself without.
        pairs: Texts that mean the same, for alignment.
        tau: Temperature of the comparison, where the method has none.
        extent: Limits on how much a diagnosis measures.
        step: Told of progress.
        **options: Further arguments of `Embedder`, such as `tokenizer`.

    Returns:
        What was found; what the model or the texts do not allow is left out with the reason.

    Raises:
        InvalidText: A text is blank, no string, or not valid Unicode.
        InvalidParameter: There are fewer than two different texts, or an argument is outside its range.
        UnknownMethod: No method of that name.
        ModelNotFound: No usable model there.
        UnsupportedModel: The model cannot be run exactly, or not under this method.
    """
    extent = extent or Extent()
    asked = method if isinstance(method, Method) else methods.parse(method)
    given = drawn(texts, extent.texts, extent.seed)
    sides = [checked_texts([pair[at] for pair in pairs]) if pairs else [] for at in (0, 1)]
    plain = methods.without_temperature(asked)
    sharp = asked if asked.temperature is not None else asked | methods.tempscale(tau=tau)
    with Embedder(model, method=plain, **{"check": False, **options}) as embedder:
        pipeline = embedder._pipeline
        tokenizer, runner = pipeline.planner.tokenizer, pipeline.open_runner
        cut = extent.lengths
        sample = by_cutting(given, tokenizer, cut) if cut else by_length(given, tokenizer, extent.bins)
        bins = [
            {"tokens": each.label, "from": each.low, "to": each.high, "texts": len(each.members)}
            for each in sample.bins
        ]
        found = Diagnosis(_about(embedder, asked, sample, len(pairs), extent.seed), bins, [])
        work = _DiagnosisRun(embedder, sample, sides, extent, step, found)
        work.side("before", plain, pipeline)
        try:
            sharper = Runner(
                runner.host,
                replace(embedder.method, temperature=sharp.temperature),
                runner.token_weights,
                batch_tokens=runner.batch_tokens,
                batch_size=None,
                space=runner.space,
            )
        except EddyError as error:
            found.left_out["after TempScale"] = str(error)
            after = pipeline
        else:
            after = replace(pipeline, runner=sharper, counts=Counts())
            work.side("after", sharp, after)
        work.inside(pipeline if asked.temperature is None else after)
    return found


def _about(embedder: Embedder, method: Method, sample: Sample, pairs: int, seed: int) -> dict[str, Any]:
    return {
        "model": embedder.model_name,
        "method": str(method),
        "version": __version__,
        "fingerprint": embedder.fingerprint,
        "exit": embedder.method.exit_layer,
        "layers": embedder.backbone.layers,
        "width": embedder.width,
        "texts": len(sample.whole),
        "pairs": pairs,
        "cut": sample.cut,
        "seed": seed,
    }


@dataclass(frozen=True, eq=False)
class _DiagnosisRun:
    """Measures a sample, and adds what it finds to a diagnosis."""

    embedder: Embedder
    sample: Sample
    pairs: list[list[str]]
    extent: Extent
    step: Step
    found: Diagnosis

    def side(self, name: str, method: Method, pipeline: Pipeline) -> None:
        """Geometry and attention of one of the two methods."""
        left_out, first_side = self.found.left_out, name == "before"
        side = CollapseSide(name, str(method))
        self.found.sides.append(side)
        texts, whole = list(self.sample.texts), list(self.sample.whole)
        own = read(
            pipeline,
            texts + self.pairs[0] + self.pairs[1],
            lambda done, total: self.step(f"{name}: texts", done, total),
            every=first_side,
        )
        vectors = own.vectors(pipeline, self.embedder.method.post)
        mine, first, second = np.split(vectors, [len(texts), len(texts) + len(self.pairs[0])])
        centre = mine.mean(axis=0)
        for each in self.sample.bins:
            side.cosine.append(mean_cosine(mine[list(each.members)]))
            side.distance.append(distance_to(centre, mine[list(each.members)]))
        largest, effective = principal(mine[whole])
        side.space = {
            "uniformity": uniformity(mine[whole]),
            "mean_cosine": mean_cosine(mine[whole]),
            "largest_share": largest,
            "largest_dimension": dimension_share(mine[whole]),
            "effective_dimensions": effective,
        }
        if len(first):
            side.space |= {"alignment": alignment(first, second), "nearest": nearest_share(first, second)}
        elif first_side:
            left_out["alignment"] = "it needs pairs of texts that mean the same; name a file of them with --pairs"
        if first_side:
            self._levels(own.states[:, whole], own.layers)
            if own.reason is not None:
                left_out["layers below the exit"] = own.reason
        self._attention(side, pipeline)

    def _levels(self, states: Floats, layers: tuple[int, ...]) -> None:
        """The vectors of all texts at each layer, from states of shape (layers, texts, width)."""
        if states.shape[1] < FEWEST:
            self.found.left_out["intrinsic dimension"] = (
                f"an estimate needs {FEWEST} different texts, and there are {states.shape[1]}; add texts"
            )
        for layer, rows in zip(layers, states, strict=True):
            points = different_states(rows)
            dimension = intrinsic_dimension(points) if len(points) >= FEWEST else float("nan")
            self.found.levels.append(LayerSpectrum(layer, dimension, mean_cosine(rows), uniformity(rows)))

    def _attention(self, side: CollapseSide, pipeline: Pipeline) -> None:
        """Attention as a filter, by bin."""
        host = pipeline.open_runner.host
        try:
            host.check_attention_reachable(["a watch"])
            if host.exit_layer == 0:
                raise InvalidParameter("the method reads below the first layer, where there is no attention yet")
        except EddyError as error:
            self.found.left_out["attention"] = str(error)
            return
        chosen = [_spread(each.members, self.extent.attention) for each in self.sample.bins]
        total, done = sum(map(len, chosen)), 0
        for members in chosen:
            rows: list[SingleTextDiagnosis] = []
            for at in members:
                rows.append(see(pipeline, self.sample.texts[at]))
                done += 1
                self.step(f"{side.name}: attention", done, total)
            side.sigma.append(np.mean([row.sigma for row in rows], axis=0).tolist())
            side.share.append(np.mean([row.share for row in rows], axis=0).tolist())
            side.states.append(np.mean([row.states for row in rows], axis=0).tolist())
            if side.name == "before" and not host.bidirectional:
                even = [float(Filter.of(partial(uniform_attention, row.tokens)).sigma[0]) for row in rows]
                self.found.even_sigma.append(float(np.mean(even)))

    def inside(self, pipeline: Pipeline) -> None:
        """Tokens in the mean, sensitivity and entries of the method that was asked for."""
        texts, found = self.sample.texts, self.found
        self._tokens(pipeline)
        chosen = [self._short(texts[at]) for at in _spread(self.sample.whole, self.extent.gradients)]
        example = self._short(min(texts, key=lambda text: abs(len(self._ends(text)) - EXAMPLE)))
        sequence = laid_out(pipeline, example)
        starts, ends = (side[sequence.text].tolist() for side in (sequence.starts, sequence.ends))
        names = [example[start:end] for start, end in zip(starts, ends, strict=True)]
        try:
            found.sensitivity = self._sensitivity(pipeline, chosen, example, names)
        except (EddyError, MemoryError) as error:
            found.left_out["sensitivity"] = str(error)
        reroute = self.embedder.method.reroute
        if reroute is not None and reroute.layers:
            found.entries = self._entries(pipeline, chosen, example, names, reroute.entries)
        else:
            name = found.about["method"]
            found.left_out["attention on the re-routed entry"] = (
                f"{name} re-routes nothing; name a method that does, such as kv, or {name}+reroute:layers=..."
            )

    def _tokens(self, pipeline: Pipeline) -> None:
        """The share of single tokens in the mean."""
        if not self.embedder.can_embed_spans:
            self.found.left_out["tokens in the mean"] = "the method reads one token; name one that averages"
            return
        raw = replace(pipeline, finish=replace(pipeline.finish, post=None, fitted=None))
        short = [self._short(self.sample.texts[at]) for at in self.sample.whole]
        tokens: list[TokenNorms] = []
        for first in range(0, len(short), TOGETHER):
            tokens += read_tokens(raw, self.embedder.method, short[first : first + TOGETHER])[1]
            self.step("tokens", len(tokens), len(short))
        self.found.sinks = sinks(tokens)
        self.found.largest_token = float(np.mean([each.shares.max() for each in tokens]))

    def _sensitivity(self, pipeline: Pipeline, chosen: list[str], example: str, names: list[str]) -> Sensitivity:
        rows: list[EntryEffect] = []
        for at, text in enumerate(chosen, start=1):
            rows.append(moved(pipeline, text, self.extent.probes))
            self.step("gradients", at, len(chosen))
        shown = moved(pipeline, example, self.extent.probes)
        places = np.mean([[by_place(norms, PLACES) for norms in row] for row in rows], axis=0)
        even = np.mean([[evenness(norms) for norms in row] for row in rows], axis=0)
        mean, last = (
            LengthCurve(curve.tolist(), (norms / norms.mean()).tolist())
            for curve, norms in zip(places, shown, strict=True)
        )
        probes = min(self.extent.probes, self.embedder.backbone.hidden)
        return Sensitivity(len(rows), probes, mean, last, float(even[0]), float(even[1]), names)

    def _entries(self, pipeline: Pipeline, chosen: list[str], example: str, names: list[str], entries: int) -> Entries:
        rows = []
        for at, text in enumerate(chosen, start=1):
            rows.append(see(pipeline, text, filters=False))
            self.step("entries", at, len(chosen))
        shown = see(pipeline, example, filters=False)
        layers = sorted(shown.entries)

        def over_places(row: SingleTextDiagnosis) -> Doubles:
            paid = np.mean([row.entries[layer] for layer in layers], axis=0)
            return np.asarray(by_place(paid, PLACES) * paid.mean())

        return Entries(
            layers=layers,
            paid=[float(np.mean([row.entries[layer].mean() for row in rows])) for layer in layers],
            even=float(np.mean([(entries / (row.sees + entries)).mean() for row in rows])),
            curve=LengthCurve(
                np.mean([over_places(row) for row in rows], axis=0).tolist(),
                np.mean([shown.entries[layer] for layer in layers], axis=0).tolist(),
            ),
            tokens=names,
        )

    def _ends(self, text: str) -> Ints:
        """Where each of the text's tokens ends."""
        return self.embedder._pipeline.planner.tokenizer.places(text)[1]

    def _short(self, text: str) -> str:
        """The text, cut to as many tokens as gradients are taken through."""
        ends = self._ends(text)
        return text if len(ends) <= self.extent.tokens else text[: int(ends[self.extent.tokens - 1])]


def _spread(members: Sequence[int], count: int) -> list[int]:
    """So many of the members, evenly over all of them."""
    at = np.unique(np.linspace(0, len(members) - 1, min(count, len(members))).round().astype(int))
    return [members[each] for each in at.tolist()]
