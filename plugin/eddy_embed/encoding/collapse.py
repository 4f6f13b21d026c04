"""Whether a method collapses on a model, so that its vectors hardly tell texts apart: measured on a few sentences.

The thresholds lie between measured cases of SmolLM2, Gemma 3 270M and eddy-tiny; docs/troubleshooting.md has them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from eddy_embed.encoding.encoder import Encoder
from eddy_embed.encoding.planner import Planner
from eddy_embed.errors import EddyError, MethodCollapse, UnsupportedModel
from eddy_embed.methods.method import Method
from eddy_embed.utils.arrays import Doubles, Ints

PAIRS = (
    ("The ferry leaves the island at noon.", "At midday the boat departs from the island."),
    ("A thief stole three paintings from the museum.", "Three museum pictures were taken by a burglar."),
    ("My grandmother bakes bread every Sunday.", "Every Sunday, bread comes from Grandma's oven."),
    ("Heavy rain flooded the narrow streets.", "After the downpour the streets were under water."),
    ("The surgeon operated for six hours.", "It took the doctor six hours of surgery."),
    ("Wolves hunt together in packs.", "In groups, wolves chase their prey."),
    ("The court rejected the company's appeal.", "Judges dismissed an appeal by the firm."),
    ("He forgot where he had parked the car.", "Where his car stood he could not remember."),
    ("Solar panels now cover the school roof.", "On the school's roof there are solar cells."),
    ("The orchestra rehearsed the symphony twice.", "Musicians practised the symphony two times."),
    ("Prices of coffee doubled last year.", "Coffee now costs twice what it did."),
    ("The goalkeeper saved the final penalty.", "A last penalty was stopped by the keeper."),
    ("Astronomers found a planet near a distant star.", "Around a faraway star, a planet was discovered."),
    ("This phone needs a new battery.", "You should replace the battery of your phone."),
    ("The baby slept through the whole thunderstorm.", "Thunder never woke the sleeping infant."),
    ("Volunteers planted trees along the river.", "On the river bank, helpers put in young trees."),
)
"""Sentences and their paraphrases; different pairs have nothing in common."""
MOST_TOKEN, MOST_DIMENSION, FEWEST_NEAREST = 0.45, 0.15, 0.28
"""Thresholds of an alarm, for the numbers of `Collapse`. The mean cosine has none: sound methods reach 0.99."""
TOKENS_A_WORD = 2.5
"""A tokenizer that needs more was not made for English, and English sentences say little about its model."""
SAME = 1 - 1e-10
"""Mean cosine above which vectors differ by rounding alone."""


class TokenShares(NamedTuple):
    """The tokens of one text in the mean that its vector is.

    Attributes:
        pieces: Their characters.
        shares: Share of each in the sum of the weighted norms of their states, shape (tokens,).
    """

    pieces: list[str]
    shares: Doubles


@dataclass(frozen=True)
class Collapse:
    """What a method makes of `PAIRS`.

    Attributes:
        cosine: Mean cosine of unrelated sentences.
        dimension: Largest share of one dimension in the variance.
        token: Largest share of one token in a mean, averaged over the sentences; NaN if the method reads one token.
        place: Which token that mostly is, in words.
        nearest: Share of sentences whose paraphrase is nearer than every other sentence.
    """

    cosine: float
    dimension: float
    token: float
    place: str
    nearest: float

    @property
    def fault(self) -> str | None:
        """The number that shows a collapse, in words; None for a sound method."""
        if self.token > MOST_TOKEN:
            return f"{self.place} has {self.token:.0%} of the mean over a sentence (limit: {MOST_TOKEN:.0%})"
        if self.dimension > MOST_DIMENSION:
            return f"a single dimension has {self.dimension:.0%} of the variance (limit: {MOST_DIMENSION:.0%})"
        if self.nearest < FEWEST_NEAREST:
            return f"{self.nearest:.0%} of sentences are nearest to their paraphrase (limit: {FEWEST_NEAREST:.0%})"
        return None


def warn_of_collapse(pipeline: Encoder, method: Method, model: str) -> None:
    """Warn with MethodCollapse, on behalf of the caller's caller, if a method collapses on the model of that name.

    Nothing is measured for methods whose post-processing is fitted, since that is the answer to some collapses and
    belongs to a library, nor for other languages and for tokenizers that were not made for English.

    Raises:
        UnsupportedModel: All texts have one vector.
    """
    if (method.post is not None and method.post.learns) or not _reads_english(pipeline.planner):
        return
    try:
        collapse = measure(pipeline, method)
    except (EddyError, MemoryError):
        return  # embedding a text raises it again, and names that text
    if collapse.cosine > SAME:
        raise UnsupportedModel(
            f"{method} gives every text the same vector on {model}: the weights are damaged, or the position that it "
            "reads sees no text; fetch the model again, or name another method"
        )
    if collapse.fault is not None:
        warnings.warn(
            f"{method} collapses on {model}: {collapse.fault}, so its vectors hardly tell texts apart; "
            f"{_remedy(pipeline, collapse)}, or method='recommended'; check=False skips this",
            MethodCollapse,
            stacklevel=3,
        )


def measure(pipeline: Encoder, method: Method) -> Collapse:
    """Return what the pipeline's method makes of `PAIRS`, without touching the pipeline's counts.

    Raises:
        EddyError: A sentence cannot be embedded.
    """
    # The first of several wordings stands for all.
    planner = replace(pipeline.planner, layout=pipeline.planner.layout.wordings[0])
    vectors, tokens = read(replace(pipeline, planner=planner), method, [text for pair in PAIRS for text in pair])
    cosines = vectors @ vectors.T
    pair = np.arange(len(vectors)) // 2
    places = [int(shares.shares.argmax()) for shares in tokens]
    pieces = [shares.pieces[at] for shares, at in zip(tokens, places, strict=True)]
    first = 2 * places.count(0) >= len(places)
    return Collapse(
        cosine=float(cosines[pair[:, None] != pair].mean()),
        dimension=dimension_share(vectors),
        token=float(np.mean([shares.shares.max() for shares in tokens])) if tokens else math.nan,
        place="the first token" if first else f"a token such as {max(set(pieces), key=pieces.count)!r}",
        nearest=nearest_share(vectors[::2], vectors[1::2]),
    )


def read(pipeline: Encoder, method: Method, texts: Seq[str]) -> tuple[Doubles, list[TokenShares]]:
    """Return unit vectors, shape (texts, dimension), and the tokens in their means, none if one token is read."""
    # One by one: tokenizing several starts the tokenizer's threads, about which it complains in a later fork.
    planned = [plan for text in texts for plan in pipeline.planner.plan([text], "document")]
    spans = [_token_spans(pipeline.planner, text) for text in texts] if method.can_embed_spans else []
    sums = pipeline.open_runner.run(planned, [[rows] for rows in spans] or [[] for _ in texts])
    vectors = replace(pipeline.finish, normalize=True)(np.stack([pooled.document for pooled in sums]), 0)
    tokens = []
    for text, rows, pooled in zip(texts, spans, sums, strict=False):
        norms = np.linalg.norm(pooled.parts[0], axis=1)
        tokens.append(TokenShares([text[a:b] for a, b in rows.tolist()], norms / norms.sum()))
    return vectors, tokens


def dimension_share(vectors: Doubles) -> float:
    """Return the largest share of one dimension in the variance of vectors, of shape (vectors, width), or NaN."""
    variances = vectors.var(axis=0)
    total = float(variances.sum())
    return float(variances.max()) / total if total > np.finfo(np.float64).eps else math.nan


def nearest_share(first: Doubles, second: Doubles) -> float:
    """Return the share of texts nearest to their partner, by unit vectors of shape (pairs, width)."""
    vectors = np.concatenate([first, second])
    cosines = vectors @ vectors.T
    row, partner = np.arange(len(vectors)), np.roll(np.arange(len(vectors)), len(first))
    paired = cosines[row, partner]
    cosines[row, row] = cosines[row, partner] = -np.inf
    return float((paired > cosines.max(axis=1)).mean())


def _token_spans(planner: Planner, text: str) -> Ints:
    """Return the characters of each token, shape (tokens, 2); several tokens of one character count as one."""
    starts = np.unique(planner.tokenizer.places(text)[0])
    return np.stack([starts, np.append(starts[1:], len(text))], axis=1)


def _reads_english(planner: Planner) -> bool:
    words = sum(len(text.split()) for pair in PAIRS for text in pair)
    tokens = np.concatenate([planner.tokenizer([text])[0].ids for pair in PAIRS for text in pair])
    known = planner.tokenizer.unknown not in tokens
    return planner.segmenter.language == "en" and known and len(tokens) <= TOKENS_A_WORD * words


def _remedy(pipeline: Encoder, collapse: Collapse) -> str:
    """Return what helps most, in words."""
    if not len(pipeline.planner.prefix) and not pipeline.open_runner.host.bidirectional:
        return "put a start token ahead of texts (start:token=auto, or one of the vocabulary)"
    if collapse.token > MOST_TOKEN:
        return "name an exit where no token dominates, such as exit=0, with +sif"
    if collapse.dimension > MOST_DIMENSION:
        return "name another exit, or add +whiten and fit it on your texts"
    return "name another exit, or a method that suits the model"
