"""spaCy pipelines: loaded at first use, one for each language, shared by all threads."""

from __future__ import annotations

import importlib.util
import pkgutil
import re
import threading
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from eddy_embed.segment.rules import Rules

if TYPE_CHECKING:
    from spacy.tokens import Doc

_PIECE = 20_000
_MARGIN = 200
_LONGEST_RUN = 300
_MOST_NEW_STRINGS = 300_000

_PLAIN_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")

_pipelines: dict[str, Pipeline] = {}
_pipelines_lock = threading.Lock()


@cache
def languages() -> tuple[str, ...]:
    """Return the codes of the languages that spaCy has data for, without loading spaCy."""
    spec = importlib.util.find_spec("spacy")
    places = [f"{place}/lang" for place in (spec.submodule_search_locations or ())] if spec else []
    return tuple(sorted(module.name for module in pkgutil.iter_modules(places) if module.ispkg))


class Pipeline:
    """The tokenizer of a language and the rules over its documents."""

    def __init__(self, language: str) -> None:
        import spacy
        from spacy.pipeline import Sentencizer

        # spaCy's own rule tokenizer for every language: those of Japanese, Korean, Thai and Vietnamese need further
        # packages, and the sentences would depend on whether they are installed.
        tokenizer = {"nlp": {"tokenizer": {"@tokenizers": "spacy.Tokenizer.v1"}}}
        self.nlp = spacy.blank(language, config=tokenizer)
        kept_whole = {str(word)[:-1] for word in cast(Any, self.nlp.tokenizer).rules if str(word).endswith(".")}
        self.rules = Rules(language, kept_whole, Sentencizer.default_punct_chars)
        self.lock = threading.Lock()
        self.known_strings = len(self.nlp.vocab.strings)

    @property
    def is_full(self) -> bool:
        """Whether the vocabulary, which never forgets a word, has grown so far that a new one should take over."""
        return len(self.nlp.vocab.strings) - self.known_strings > _MOST_NEW_STRINGS

    def boundaries(self, text: str) -> list[int]:
        """Find where sentences begin in a block of prose, apart from its first one.

        Args:
            text: One block, of any length.

        Returns:
            Rising offsets of characters, each behind the stop that ends a sentence.
        """
        if not self.rules.has_candidate(text):
            return []
        is_lower = text.islower()
        found: list[int] = []
        at, fresh = 0, True
        # Documents of bounded size keep the tokenizer's time and memory linear in the length of the text. The next one
        # begins where a sentence does, so that the end of a document is no border of its own.
        while at < len(text):
            end = min(at + _PIECE, len(text))
            is_last = end == len(text)
            piece = text[at:end]
            with self.lock:
                inside = self.rules.boundaries(self._doc(piece), piece, is_lower=is_lower, fresh=fresh, whole=is_last)
            if is_last:
                found += [at + offset for offset in inside]
                break
            inside = [offset for offset in inside if offset < len(piece) - _MARGIN]
            found += [at + offset for offset in inside]
            fresh = bool(inside)
            at += inside[-1] if inside else _last_gap(piece)
        return found

    def _doc(self, text: str) -> Doc:
        """Tokenize; very long runs without whitespace get plain tokens, as affixes would be stripped in square time."""
        if max(map(len, text.split()), default=0) <= _LONGEST_RUN:
            return self.nlp.make_doc(text)
        from spacy.tokens import Doc

        words = _PLAIN_TOKEN.findall(text)
        return Doc(self.nlp.vocab, words=words, spaces=[False] * len(words))


def _last_gap(piece: str) -> int:
    end = len(piece) - _MARGIN
    gap = max(piece.rfind(" ", end - _MARGIN, end), piece.rfind("\n", end - _MARGIN, end))
    return gap if gap > 0 else end


def get_pipeline(language: str) -> Pipeline:
    """Return the shared pipeline of a language, loading spaCy at the first call."""
    pipeline = _pipelines.get(language)
    if pipeline is not None and not pipeline.is_full:
        return pipeline
    with _pipelines_lock:
        pipeline = _pipelines.get(language)
        if pipeline is None or pipeline.is_full:
            pipeline = _pipelines[language] = Pipeline(language)
        return pipeline
