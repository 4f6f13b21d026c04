"""spaCy pipelines: loaded at first use, one for each language, shared by all threads."""

from __future__ import annotations

import importlib.util
import pkgutil
import threading
from functools import cache, lru_cache
from typing import Any, cast

from eddy_embed.text.sentences.sentence_rules import Rules

_MOST_NEW_STRINGS = 200_000
_CACHED_WORDS = 20_000

_pipelines: dict[str, Pipeline] = {}
_pipelines_lock = threading.Lock()


@cache
def languages() -> tuple[str, ...]:
    """Return the codes of the languages that spaCy has data for, without loading spaCy."""
    spec = importlib.util.find_spec("spacy")
    places = [f"{place}/lang" for place in (spec.submodule_search_locations or ())] if spec else []
    return tuple(sorted(module.name for module in pkgutil.iter_modules(places) if module.ispkg))


class Pipeline:
    """A blank spaCy pipeline of a language, whose tokenizer tells the rules which word stands before a stop.

    spaCy's tokenizer treats every run of characters between whitespace for itself. So only the runs that hold a full
    stop are given to it: the tokens are those that it would find in the whole text, in a tenth of the time, and its
    vocabulary, which never forgets a word, stays small.
    """

    def __init__(self, language: str) -> None:
        import spacy
        from spacy.pipeline import Sentencizer

        # spaCy's own rule tokenizer for every language: those of Japanese, Korean, Thai and Vietnamese need further
        # packages, and the sentences would depend on whether they are installed.
        tokenizer = {"nlp": {"tokenizer": {"@tokenizers": "spacy.Tokenizer.v1"}}}
        self.nlp = spacy.blank(language, config=tokenizer)
        kept_whole = {str(word)[:-1] for word in cast(Any, self.nlp.tokenizer).rules if str(word).endswith(".")}
        self.word_before = lru_cache(_CACHED_WORDS)(self._word_before)
        self.rules = Rules(language, kept_whole, Sentencizer.default_punct_chars, self.word_before)
        self.lock = threading.Lock()
        self.known_strings = len(self.nlp.vocab.strings)

    @property
    def is_full(self) -> bool:
        """Whether the vocabulary has grown so far that a new pipeline should take over."""
        return len(self.nlp.vocab.strings) - self.known_strings > _MOST_NEW_STRINGS

    def _word_before(self, run: str, stop: int) -> str:
        """Return the token that a stop stands in or behind, without the stop.

        Args:
            run: Characters without whitespace.
            stop: Offset of the stop in them.
        """
        with self.lock:
            span = self.nlp.make_doc(run).char_span(stop - 1, stop, alignment_mode="expand")
        return run[span.start_char : stop] if span is not None else ""


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
