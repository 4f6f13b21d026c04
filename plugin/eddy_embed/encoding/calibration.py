"""A model's calibration: what post-processing learns of a model and method, once, on general text."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from eddy_embed.encoding.pipeline import Counts, Pipeline
from eddy_embed.encoding.validation import chunks
from eddy_embed.errors import InvalidParameter
from eddy_embed.model.fingerprint import digest
from eddy_embed.model.loading.cache import cache_folder
from eddy_embed.parts.layout import TextRole
from eddy_embed.parts.postprocess import Fitted, Post, fit, statistics
from eddy_embed.text.general import general_text
from eddy_embed.utils.moments import RunningMoments
from eddy_embed.utils.progress import Progress


def calibrated(pipeline: Pipeline, post: Post, made_by: dict[str, Any], dtype: str, bar: Progress | None) -> Fitted:
    """Post-processing fitted on general text: read from the cache, else fitted and kept there.

    Args:
        pipeline: Of the model and method.
        post: The method's post-processing.
        made_by: `Embedder.made_by`.
        dtype: Type of the model's numbers, whose rounding is in a fit.
        bar: Shows progress.
    """
    text = general_text()
    about = {"post": asdict(post), "made_by": made_by, "dtype": dtype, "general": text.name}
    file = cache_folder() / "calibrations" / f"{digest(about)}.npz"
    with suppress(InvalidParameter):  # there is none yet, or it is damaged and made anew
        return Fitted.load(file)
    fitted = fitted_on(pipeline, post, text.passages, text.questions, bar)
    fitted = replace(fitted, made_by=made_by, general=text.name)
    with suppress(OSError):  # where the cache may only be read, each process fits anew
        file.parent.mkdir(parents=True, exist_ok=True)
        fitted.save(file)
    return fitted


def fitted_on(
    pipeline: Pipeline, post: Post, passages: Iterable[str], questions: Iterable[str], bar: Progress | None
) -> Fitted:
    """Post-processing fitted on passages and questions, whose reading the pipeline does not count."""
    pipeline = replace(pipeline, counts=Counts())
    moments = _moments(pipeline, post, list(passages), "document", bar)
    return fit(post, moments, _moments(pipeline, post, list(questions), "query", bar))


def _moments(pipeline: Pipeline, post: Post, texts: list[str], role: TextRole, bar: Progress | None) -> RunningMoments:
    parts = (
        pipeline.finish.for_post(np.stack([sums.document for sums in pipeline.sums(chunk, role, bar)]))
        for _, chunk in chunks(texts)
    )
    return statistics(post, parts)
