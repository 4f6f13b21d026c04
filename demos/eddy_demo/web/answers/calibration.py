"""Threshold above which a passage counts as an answer, from questions that no library can answer."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence

import numpy as np

from chroma_eddy import Hit, Index
from chroma_eddy.storage.names import MAIN

# About things that do not exist. No level of a score says by itself that a question is answered. These questions show
# what irrelevant passages of this library reach.
UNANSWERABLE_QUESTIONS = (
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
QUANTILE = 0.75
"""Share of those questions whose best support an answer must exceed."""
CANDIDATES = 8
"""Number of passages whose sentences are candidates for an answer."""
_DEVIATIONS = 20
"""Standard deviations of a passage's cosine that count as much as all words of the question."""
_SIZE_CHANGE = 1.1
"""Ratio of the numbers of passages above which a threshold is out of date."""
_WORD = re.compile(r"\w+")
_CLOSING = "\"'”’»)]*_ "
"""Quotes and marks behind a sentence's own end."""
_MIN_WORDS = 4
_LEADING_WORDS = 7


def is_prose(text: str) -> bool:
    """Whether a sentence can be an answer: no heading, table row, line of code, question or announcement."""
    line = text.strip().rstrip(_CLOSING)
    if line.startswith(("#", "|", "```", "~~~", ">>>", "$ ")) or line.endswith(("?", "？", ":", "：")):
        return False
    return len(_WORD.findall(line)) >= _MIN_WORDS or (len(line) >= 12 and not line.isascii())


def is_fragment(text: str) -> bool:
    """Whether a sentence is too short to lead an answer; texts without spaces are measured in characters."""
    return len(_WORD.findall(text)) < _LEADING_WORDS and (text.isascii() or len(text) < 2 * _LEADING_WORDS)


def support(hit: Hit) -> float:
    """How much of a question a passage of a hybrid query answers: by its words, at most 1, and by its cosine."""
    return (hit.coverage or 0.0) + (hit.deviation or 0.0) / _DEVIATIONS


def best_support(hits: Sequence[Hit]) -> float:
    """Highest support among hits; 0 without one."""
    return max(map(support, hits), default=0.0)


class Calibration:
    """The threshold of a library, computed again when the library has changed much."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._computed: tuple[str, int, float] | None = None

    def threshold(self, index: Index) -> float:
        """Return the `QUANTILE` of the best support of the unanswerable questions."""
        with self._lock:
            fingerprint, size = index.recipe.fingerprint, index.store.count(MAIN)
            if self._computed is not None:
                computed_for, computed_size, value = self._computed
                if computed_for == fingerprint and computed_size / _SIZE_CHANGE <= size <= computed_size * _SIZE_CHANGE:
                    return value
            found = [index.query(question, CANDIDATES, hybrid=True) for question in UNANSWERABLE_QUESTIONS]
            value = float(np.quantile([best_support(hits) for hits in found], QUANTILE))
            self._computed = (fingerprint, size, value)
            return value
