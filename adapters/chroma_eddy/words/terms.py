"""Terms: what of a text counts as a word for BM25, and where it is."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import regex
import tantivy

_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
"""Scripts without spaces between words, and Korean, whose words carry their endings."""
_WORD = rf"[[\p{{L}}\p{{N}}]--[{_UNSPACED}]]"
_APOSTROPHES = "'’ʼ＇"
# Cf has the soft hyphen. An apostrophe, curly or straight, ends a word: "dog's" is found as "dog".
_TERM = regex.compile(
    rf"(?V1)(?P<run>[{_UNSPACED}][{_UNSPACED}\p{{M}}ー]*)"
    rf"|(?!(?<=\p{{L}}[{_APOSTROPHES}])[sS]\b){_WORD}(?:{_WORD}|[\p{{M}}\p{{Cf}}])*"
)
_CLUSTER = regex.compile(r"\X")
_FORMAT = regex.compile(r"\p{Cf}")
_ACCENTS = regex.compile(r"[\u0300-\u036f]")
_STEMMERS = {
    "ar": "arabic",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "es": "spanish",
    "fi": "finnish",
    "fr": "french",
    "hu": "hungarian",
    "it": "italian",
    "nl": "dutch",
    "no": "norwegian",
    "nb": "norwegian",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
}
_CACHED = 100_000
"""Words whose terms are remembered."""


class Term(NamedTuple):
    """A term, and the range of characters that it stands for."""

    text: str
    start: int
    end: int


class TermAnalyzer:
    """Cuts texts into terms: lower case, without accents and typographic variants, stemmed where the language is known.

    Scripts without spaces give pairs of neighbouring characters.
    """

    def __init__(self, language: str) -> None:
        """`language` is a two-letter code, such as "en"."""
        self._stemmer: tantivy.TextAnalyzer | None = None
        if language in _STEMMERS:
            stemmer = tantivy.Filter.stemmer(_STEMMERS[language])
            self._stemmer = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.raw()).filter(stemmer).build()
        self._stop_words = _stop_words(language)
        self._fold = lru_cache(_CACHED)(self._folded)

    def __call__(self, text: str) -> Iterator[Term]:
        """Yield the terms of a text, in order."""
        for found in _TERM.finditer(text):
            if found["run"] is None:
                for term in self._fold(found[0]).split():  # some characters stand for several words
                    yield Term(term, *found.span())
                continue
            clusters = [each.span() for each in _CLUSTER.finditer(text, *found.span())]
            for (start, end), (_, after) in zip(clusters, clusters[1:] or clusters, strict=False):
                stop = max(end, after)
                yield Term(unicodedata.normalize("NFKC", text[start:stop]), start, stop)

    def texts(self, text: str) -> list[str]:
        """The terms of a text without their places, in order."""
        found: list[str] = []
        for each in _TERM.finditer(text):
            found += self._fold(each[0]).split() if each["run"] is None else [term.text for term in self(each[0])]
        return found

    def of_question(self, question: str) -> list[str]:
        """The terms of a question, in order, repeated as there; without stop words, unless it has no others.

        Stop words in texts do no harm: a word in nearly every text weighs next to nothing. Question words are rare in
        texts and would weigh much.
        """
        found = list(self(question))
        telling = [term for term in found if question[term.start : term.end].casefold() not in self._stop_words]
        return [term.text for term in telling or found]

    def _folded(self, word: str) -> str:
        plain = unicodedata.normalize("NFKC", _FORMAT.sub("", word)).casefold()
        if self._stemmer is not None:
            plain = (self._stemmer.analyze(plain) or [plain])[0]
        return str(_ACCENTS.sub("", unicodedata.normalize("NFD", plain)))


def _stop_words(language: str) -> set[str]:
    """SpaCy's stop words of a language; none of one that it does not know."""
    from spacy.util import get_lang_class  # imports torch

    try:
        return set(get_lang_class(language).Defaults.stop_words)
    except ImportError:
        return set()
