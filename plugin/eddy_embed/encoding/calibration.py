"""What is learned of a model once, on general text: its post-processing's calibration, and the layers for `kv`."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from eddy_embed import methods
from eddy_embed.encoding.encoder import Counts, Encoder, VectorFinalizer
from eddy_embed.encoding.validation import chunks
from eddy_embed.errors import InvalidParameter
from eddy_embed.methods.kv import distinct, intrinsic_dimension, propose
from eddy_embed.model.loading.catalog import cache_folder
from eddy_embed.model.packed import weights_digest
from eddy_embed.parts.layout import TextRole
from eddy_embed.parts.postprocess import Fitted, Post, fit, statistics
from eddy_embed.text.calibration import calibration_text
from eddy_embed.text.sentences import Segmenter
from eddy_embed.utils.arrays import Doubles, unit
from eddy_embed.utils.atomic_files import atomic_write
from eddy_embed.utils.moments import RunningMoments
from eddy_embed.utils.progress import Progress
from eddy_embed.utils.settings import digest

logger = logging.getLogger(__name__)

SHIPPED = Path(__file__).with_name("calibrations")
"""Calibrations that come with Eddy, fitted in float32, which `benchmarks/calibrations.py` makes."""
ALIKE = 1e-5
"""States this near to their mean, relative to its length, are one: what differs is rounding."""
FEWEST = 100
"""Fewest different states; at 100 an estimate is off by a tenth, which is what the rule looks for."""
MEASURED = methods.kv(layers="", exit=-2, pool="last")
"""The prompt of `kv` up to the last layer but one, without re-routing."""


def calibrated(pipeline: Encoder, post: Post, made_by: dict[str, Any], dtype: str, bar: Progress | None) -> Fitted:
    """Return post-processing fitted on general text: Eddy's or the cache's, else fitted now and kept in the cache.

    `made_by` is `Embedder.made_by`; `dtype` is the type of the model's numbers, whose rounding is in a fit.
    """
    text = calibration_text()
    about = {"post": asdict(post), "made_by": made_by, "dtype": dtype, "general": text.name}
    file = cache_folder() / "calibrations" / f"{digest(about)}.npz"
    for place in (SHIPPED / shipped_name(post, made_by), file):
        with suppress(InvalidParameter):  # there is none yet, or it is damaged and made anew
            return Fitted.load(place)
    logger.info("calibrating %s on %d general texts, once", post, len(text.passages) + len(text.questions))
    fitted = fitted_on(pipeline, post, text.passages, text.questions, bar)
    fitted = replace(fitted, made_by=made_by, general=text.name)
    with suppress(OSError):  # where the cache may only be read, each process fits anew
        file.parent.mkdir(parents=True, exist_ok=True)
        fitted.save(file)
    return fitted


def shipped_name(post: Post, made_by: dict[str, Any]) -> str:
    """Return the name of a shipped calibration's file: of all that decides it but the type of the model's numbers."""
    return f"{digest({'post': asdict(post), 'made_by': made_by, 'general': calibration_text().name})}.npz"


def fitted_on(
    pipeline: Encoder, post: Post, passages: Iterable[str], questions: Iterable[str], bar: Progress | None
) -> Fitted:
    """Fit post-processing on passages and questions, whose reading the pipeline does not count."""
    pipeline = replace(pipeline, counts=Counts())
    moments = _moments(pipeline, post, list(passages), "document", bar)
    return fit(post, moments, _moments(pipeline, post, list(questions), "query", bar))


def _moments(pipeline: Encoder, post: Post, texts: list[str], role: TextRole, bar: Progress | None) -> RunningMoments:
    finish = pipeline.finish
    parts = (
        finish.for_post(finish.states(np.stack([sums.document for sums in pipeline.sums(chunk, role, bar)])))
        for _, chunk in chunks(texts)
    )
    return statistics(post, parts)


def unrelated(pipeline: Encoder, made_by: dict[str, Any], dtype: str, bar: Progress | None) -> tuple[float, float]:
    """Return the mean and standard deviation of cosines of general questions with passages about other things.

    Eddy's or the cache's, else computed and kept there; arguments as of `calibrated`, with the post-processing.
    """
    text = calibration_text()
    about = {"made_by": made_by, "dtype": dtype, "general": text.name}
    file = cache_folder() / "unrelated" / f"{digest(about)}.json"
    for place in (SHIPPED / unrelated_name(made_by), file):
        with suppress(OSError, ValueError):  # there is none yet, or it is damaged and made anew
            mean, deviation = json.loads(place.read_text(encoding="utf-8"))
            return float(mean), float(deviation)
    pipeline = replace(pipeline, counts=Counts())

    def vectors(texts: list[str], role: TextRole) -> Doubles:
        return unit(np.stack([vector for _, vector in pipeline.vectors(texts, role, bar)]))

    cosines = vectors(text.questions, "query") @ vectors(text.passages, "document").T
    moments = float(cosines.mean()), float(cosines.std())
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as out:
            out.write(json.dumps(moments).encode())
    return moments


def unrelated_name(made_by: dict[str, Any]) -> str:
    """Return the name of the shipped file, as `shipped_name`."""
    return f"{digest({'unrelated': made_by, 'general': calibration_text().name})}.json"


# --- Layers for kv


def general_layers(pipeline: Encoder, bar: Progress | None) -> tuple[int, ...]:
    """Return the layers that general sentences propose for a model: read from the cache, else measured and kept there.

    Args:
        pipeline: Of the model with the method `MEASURED`.
        bar: Shows progress.
    """
    text, host, planner = calibration_text(), pipeline.open_runner.host, pipeline.planner
    about = {"general": text.name, "weights": weights_digest(host.weights()), "config": host.settings}
    about = {**about, "tokenizer": planner.tokenizer.digest, "dtype": host.dtype_name}
    file = cache_folder() / "layers" / f"{digest(about)}.json"
    with suppress(OSError, ValueError):  # there is none yet, or it is damaged and made anew
        return tuple(map(int, json.loads(file.read_text(encoding="utf-8"))))
    sentences = {sentence.text: None for passage in text.passages for sentence in Segmenter("xx").sentences(passage)}
    proposal = propose(dimensions_of(last_states(pipeline, [*sentences, *text.questions], bar)))
    minima = ", ".join(f"h[{state}]" for state in proposal.minima) or "none"
    logger.info("layers=auto: %s, by the rule %r; clear minima: %s", proposal.method, proposal.rule, minima)
    layers = proposal.layers
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as out:
            out.write(json.dumps(layers).encode())
    return layers


def dimensions_of(states: NDArray[Any]) -> list[float]:
    """Return intrinsic dimension of each layer's states; NaN where too few are different for an estimate."""
    points = [different_states(rows) for rows in states]
    return [intrinsic_dimension(rows) if len(rows) >= FEWEST else math.nan for rows in points]


def different_states(rows: NDArray[Any]) -> Doubles:
    """Return the different states: one where no text reaches the last token, as always behind the embedding."""
    points = distinct(rows)
    mean = points.mean(axis=0)
    apart = np.linalg.norm(points - mean, axis=1).max()
    return points[:1] if apart <= ALIKE * np.linalg.norm(mean) else points


def last_states(pipeline: Encoder, texts: list[str], bar: Progress | None) -> NDArray[Any]:
    """Return each text's last state behind the embedding and each of M layers, shape (M + 1, texts, width)."""
    runner = pipeline.open_runner
    levels = range(runner.host.exit_layer + 1)
    runner = runner.at_layers(tuple(levels))
    pipeline = replace(pipeline, counts=Counts(), runner=runner, finish=VectorFinalizer(normalize=False))
    # Sums are in double precision, which twice the memory would be spent on.
    dtype = np.float64 if runner.host.dtype == torch.float64 else np.float32
    rows = np.empty((len(texts), runner.width), dtype)
    for at, states in pipeline.vectors(texts, "document", bar):
        rows[at] = states
    states_by_layer: NDArray[Any] = rows.reshape(len(texts), len(levels), -1).swapaxes(0, 1)
    return states_by_layer
