"""A model and a method on texts of the user's: everything measured, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from eddy_embed import __version__, methods
from eddy_embed.analysis.diagnose.attention_spectra import Filter, UniformAttention
from eddy_embed.analysis.diagnose.geometry import alignment, distance_to, mean_cosine, principal, uniformity
from eddy_embed.analysis.diagnose.layer_vectors import read
from eddy_embed.analysis.diagnose.results import (
    CollapseSide,
    Diagnosis,
    Entries,
    LayerSpectrum,
    LengthCurve,
    Sensitivity,
)
from eddy_embed.analysis.diagnose.sampling import by_cutting, by_length, drawn
from eddy_embed.analysis.diagnose.sensitivity import by_place
from eddy_embed.analysis.diagnose.single_text import PLACES, laid_out, moved, see
from eddy_embed.analysis.layers import FEWEST, different_states, intrinsic_dimension
from eddy_embed.embedder import Embedder
from eddy_embed.encoding.pipeline import Counts
from eddy_embed.encoding.runner import Runner
from eddy_embed.encoding.validation import check_count, checked_texts
from eddy_embed.errors import EddyError, InvalidParameter
from eddy_embed.methods.tempscale import TAU

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    import torch
    from numpy.typing import NDArray

    from eddy_embed.analysis.diagnose.sampling import Sample
    from eddy_embed.analysis.diagnose.single_text import SingleTextDiagnosis
    from eddy_embed.encoding.pipeline import Pipeline
    from eddy_embed.methods.method import Method

    Doubles = NDArray[np.float64]

Step = Callable[[str, int, int], None]
"""Told what is under way, and how much of it is done."""
EXAMPLE = 24
"""Tokens that the example text has, or about so many."""


@dataclass(frozen=True)
class Extent:
    """How much is looked at.

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
        """Refuse what is no number of at least 1.

        Raises:
            InvalidParameter: With the value.
        """
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
        model: Bundled name, folder, Hugging Face id, or a loaded model.
        texts: Two different ones or more.
        method: Text form or Method. With a temperature of its own, it is compared with itself without.
        pairs: Texts that mean the same, for alignment.
        tau: Temperature of the comparison, where the method has none.
        extent: How much is looked at.
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
    asked = method if not isinstance(method, str) else methods.parse(method)
    given = drawn(texts, extent.texts, extent.seed)
    sides = [checked_texts([pair[at] for pair in pairs]) if pairs else [] for at in (0, 1)]
    plain = methods.without_temperature(asked)
    sharp = asked if asked.temperature is not None else asked | methods.tempscale(tau=tau)
    with Embedder(model, method=plain, **options) as embedder:
        tokenizer = embedder._pipeline.planner.tokenizer
        cut = extent.lengths
        sample = by_cutting(given, tokenizer, cut) if cut else by_length(given, tokenizer, extent.bins)
        work = _DiagnosisRun(embedder, sample, sides, extent, step)
        found = Diagnosis(work.about(asked), work.bins(), [])
        work.side(found, "before", plain, embedder._pipeline)
        try:
            runner = embedder._pipeline.open_runner
            sharper = Runner(
                runner.host,
                replace(embedder.method, temperature=sharp.temperature),
                batch_tokens=runner.batch_tokens,
                batch_size=None,
            )
        except EddyError as error:
            found.left_out["after TempScale"] = str(error)
            after = embedder._pipeline
        else:
            after = replace(embedder._pipeline, runner=sharper, counts=Counts())
            work.side(found, "after", sharp, after)
        mine = embedder._pipeline if asked.temperature is None else after
        work.inside(found, mine)
    return found


@dataclass(frozen=True, eq=False)
class _DiagnosisRun:
    embedder: Embedder
    sample: Sample
    pairs: list[list[str]]
    extent: Extent
    step: Step

    def about(self, method: Method) -> dict[str, Any]:
        return {
            "model": self.embedder.model_name,
            "method": str(method),
            "version": __version__,
            "fingerprint": self.embedder.fingerprint,
            "exit": self.embedder.method.exit_layer,
            "layers": self.embedder.backbone.layers,
            "width": self.embedder.width,
            "texts": len(self.sample.whole),
            "pairs": len(self.pairs[0]),
            "cut": self.sample.cut,
            "seed": self.extent.seed,
        }

    def bins(self) -> list[dict[str, Any]]:
        return [
            {"tokens": each.label, "from": each.low, "to": each.high, "texts": len(each.members)}
            for each in self.sample.bins
        ]

    def side(self, found: Diagnosis, name: str, method: Method, pipeline: Pipeline) -> None:
        """Geometry and attention of one of the two methods."""
        side = CollapseSide(name, str(method))
        found.sides.append(side)
        texts = list(self.sample.texts)
        own = read(
            pipeline, texts + self.pairs[0] + self.pairs[1], self._told(f"{name}: texts"), every=name == "before"
        )
        vectors = own.vectors(pipeline, self.embedder.method.post)
        mine, first, second = np.split(vectors, [len(texts), len(texts) + len(self.pairs[0])])
        centre = mine.mean(axis=0)
        for each in self.sample.bins:
            side.cosine.append(mean_cosine(mine[list(each.members)]))
            side.distance.append(distance_to(centre, mine[list(each.members)]))
        whole = mine[list(self.sample.whole)]
        largest, effective = principal(whole)
        side.space = {
            "uniformity": uniformity(whole),
            "mean_cosine": mean_cosine(whole),
            "largest_share": largest,
            "effective_dimensions": effective,
        }
        if len(first):
            side.space["alignment"] = alignment(first, second)
        elif name == "before":
            found.left_out["alignment"] = "it needs pairs of texts that mean the same; name a file of them with --pairs"
        if name == "before":
            self._levels(found, own.states[:, : len(texts)][:, list(self.sample.whole)], own.layers)
            if own.reason is not None:
                found.left_out["layers below the exit"] = own.reason
        self._attention(found, side, pipeline)

    def _levels(self, found: Diagnosis, states: NDArray[np.float32], layers: tuple[int, ...]) -> None:
        enough = states.shape[1] >= FEWEST
        if not enough:
            found.left_out["intrinsic dimension"] = (
                f"an estimate needs {FEWEST} different texts, and there are {states.shape[1]}; add texts"
            )
        for layer, rows in zip(layers, states, strict=True):
            points = different_states(rows)
            dimension = intrinsic_dimension(points) if enough and len(points) >= FEWEST else float("nan")
            found.levels.append(LayerSpectrum(layer, dimension, mean_cosine(rows), uniformity(rows)))

    def _attention(self, found: Diagnosis, side: CollapseSide, pipeline: Pipeline) -> None:
        host = pipeline.open_runner.host
        try:
            host.check_attention_reachable(["a watch"])
            if host.exit_layer == 0:
                raise InvalidParameter("the method reads below the first layer, where there is no attention yet")
        except EddyError as error:
            found.left_out["attention"] = str(error)
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
                even = [float(Filter.of(UniformAttention(row.tokens)).sigma[0]) for row in rows]
                found.even_sigma.append(float(np.mean(even)))

    def inside(self, found: Diagnosis, pipeline: Pipeline) -> None:
        """Sensitivity and entries of the method that was asked for."""
        chosen = [self._short(self.sample.texts[at]) for at in _spread(self.sample.whole, self.extent.gradients)]
        example = self._short(min(self.sample.texts, key=lambda text: abs(self._count(text) - EXAMPLE)))
        names = _names(pipeline, example)
        try:
            found.sensitivity = self._sensitivity(pipeline, chosen, example, names)
        except (EddyError, MemoryError) as error:
            found.left_out["sensitivity"] = str(error)
        reroute = self.embedder.method.reroute
        if reroute is None or not reroute.layers:
            name = found.about["method"]
            found.left_out["attention on the re-routed entry"] = (
                f"{name} re-routes nothing; name a method that does, such as kv, or {name}+reroute:layers=..."
            )
            return
        found.entries = self._entries(pipeline, chosen, example, names, reroute.entries)

    def _sensitivity(self, pipeline: Pipeline, chosen: list[str], example: str, names: list[str]) -> Sensitivity:
        rows = []
        for at, text in enumerate(chosen, start=1):
            rows.append(moved(pipeline, text, self.extent.probes))
            self.step("gradients", at, len(chosen))
        shown = moved(pipeline, example, self.extent.probes)
        places = np.mean([row.places for row in rows], axis=0)
        even = np.mean([row.evenness for row in rows], axis=0)
        scaled = [norms / norms.mean() for norms in (shown.mean, shown.last)]
        return Sensitivity(
            texts=len(rows),
            probes=min(self.extent.probes, self.embedder.backbone.hidden),
            mean=LengthCurve(places[0].tolist(), scaled[0].tolist()),
            last=LengthCurve(places[1].tolist(), scaled[1].tolist()),
            mean_evenness=float(even[0]),
            last_evenness=float(even[1]),
            tokens=names,
        )

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

    def _count(self, text: str) -> int:
        return len(self.embedder._pipeline.planner.tokenizer.places(text)[0])

    def _short(self, text: str) -> str:
        """The text, cut to as many tokens as gradients are taken through."""
        ends = self.embedder._pipeline.planner.tokenizer.places(text)[1]
        return text if len(ends) <= self.extent.tokens else text[: int(ends[self.extent.tokens - 1])]

    def _told(self, what: str) -> Callable[[int, int], None]:
        return lambda done, total: self.step(what, done, total)


def _spread(members: Sequence[int], count: int) -> list[int]:
    """So many of the members, evenly over all of them."""
    at = np.unique(np.linspace(0, len(members) - 1, min(count, len(members))).round().astype(int))
    return [members[each] for each in at.tolist()]


def _names(pipeline: Pipeline, text: str) -> list[str]:
    """The text's tokens, as they stand in it."""
    sequence = laid_out(pipeline, text)
    own = sequence.text
    return [text[a:b] for a, b in zip(sequence.starts[own].tolist(), sequence.ends[own].tolist(), strict=True)]
