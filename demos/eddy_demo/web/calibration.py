"""When to say that the library has no answer: by what questions reach that no library can answer."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

import numpy as np

from chroma_eddy.storage.names import SENTENCES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chroma_eddy import Hit, Index

# About things that do not exist. A level of cosine says nothing by itself: in the narrow cone of a raw language model's
# vectors, 0.9 may be far apart. What sentences of a library reach for such questions is what nothing looks like there.
QUESTIONS = (
    "Who taught the plumbers of Velmora to whistle?",
    "What colour was the third Zandrian emperor's kite?",
    "How often do Brillish sheep change their hats?",
    "When did the Oskari railway begin to carry honey?",
    "Which river in Tamberlay flows through a library of stone?",
    "Why do Quorvian bakers sleep in the afternoon?",
    "How many strings has the Marrowind violin of Pelt?",
    "Where does Aunt Gwendry keep the copper umbrellas?",
    "What is the capital of the moon colony Vasht?",
    "Who won the Dorrian onion race in the year 1412?",
    "How does one cook a winter melon in the manner of Ilvane?",
    "What did the lighthouse keeper of Nurb say to the goat?",
    "Which medicine cures the blue fever of Karth?",
    "How tall is the tower of Ebbenholt?",
    "What does the Yarrow treaty say about fishing nets?",
    "When is the festival of the seven lamps in Orrin?",
)
SHARE = 0.75
"""Share of those questions whose best sentence must be passed."""
CANDIDATES = 12
"""Sentences that are looked at for an answer."""
_GROWN = 1.1
_WORDS = re.compile(r"\w+")
_LEAST = 4


def prose(text: str) -> bool:
    """Whether a sentence can stand as an answer: no heading, row of a table, line of code, question or announcement."""
    line = text.strip()
    if line.startswith(("#", "|", "```", "~~~", ">>>", "$ ")) or line.endswith(("?", "？", ":", "：")):
        return False
    return len(_WORDS.findall(line)) >= _LEAST or (len(line) >= 12 and not line.isascii())


def best(hits: Sequence[Hit]) -> float:
    """The cosine of the best sentence that can stand as an answer."""
    return max((hit.cosine for hit in hits if prose(hit.text)), default=0.0)


class Calibration:
    """The threshold of a library, found out anew when the library has changed much."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._lock = threading.Lock()
        self._known: tuple[str, int, float] | None = None

    def threshold(self, index: Index) -> float:
        """The cosine that the best sentence of most questions about nothing stays below."""
        with self._lock:
            fingerprint, size = index.recipe.fingerprint, index.store.count(SENTENCES)
            if self._known is not None:
                of, known, value = self._known
                if of == fingerprint and known / _GROWN <= size <= known * _GROWN:
                    return value
            vectors = index.embedder.encode_query(list(QUESTIONS), show_progress=False)
            reached = [best(hits) for hits in index.search(vectors, CANDIDATES, granularity="sentences")]
            value = float(np.quantile(reached, SHARE))
            self._known = (fingerprint, size, value)
            return value
