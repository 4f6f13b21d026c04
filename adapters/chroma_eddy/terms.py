"""Terms: what of a text counts as a word for keyword search, and where it is; the operators of a question."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import regex
import tantivy

TERMS_VERSION = 5
"""Changes with the terms that a passage gives: those that another version stored are read anew."""
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
"""Scripts without spaces between words, and Korean, whose words carry their endings."""
_LETTER = rf"[[\p{{L}}\p{{N}}]--[{UNSPACED}]]"
_PART = rf"{_LETTER}(?:{_LETTER}|[\p{{M}}\p{{Cf}}])*"
_APOSTROPHES = "'’‘ʼ"
_JOINT = (
    rf"[[\p{{Hyphen}}{_APOSTROPHES}&]--\p{{Cf}}]|(?<=\p{{N}}),(?=\p{{N}})|(?<=\b\p{{Lu}}) & (?=\p{{Lu}}\b)"
    r"|(?<!\b\p{Ll})\.|\.(?=\p{N}|\p{L}\b)"
)
"""What joins the parts of a compound: Wi-Fi, O'Brien, R&D, 1,299.00, U.S.A., Ph.D., Node.js; no dot as in a.py."""
_SIGNS = r"(?<=\p{L})(?:\+\+(?![\p{L}+])|\+(?![\p{L}\p{N}+])|\#(?![\p{L}\p{N}#]))"
"""What belongs to the word before it: C++, A+, C#."""
_TERM = regex.compile(
    rf"(?V1)(?P<run>[{UNSPACED}][{UNSPACED}\p{{M}}ー]*)"
    r"|(?P<emoji>(?=\p{Extended_Pictographic}|\p{RI})\X)"
    rf"|(?:(?<![\p{{L}}\p{{N}}.])\.(?=\p{{L}}))?{_PART}(?:(?:{_JOINT}){_PART})*(?:{_SIGNS})?"
)
_PARTS = regex.compile(rf"(?V1){_PART}")
_AND = regex.compile(rf"(?V1){_PART}(?: ?& ?{_PART})+")
_CLUSTER = regex.compile(r"\X")
_RAISED = regex.compile(r"(?<=[\p{L}\p{N}])(?=\p{dt=super})(?<!\p{dt=super})")
_IGNORED = regex.compile(r"[\p{Cf}\p{jt=C}\p{VS}\p{EMod}]")
_RUNS = regex.compile(r"\p{L}[\p{L}\p{M}]+|\p{N}+")
_HUMPED = regex.compile(r"(?:\p{Ll}{2,}|\p{Lu}+)?(?:\p{Lu}\p{Ll}{2,})+")
_HUMPS = regex.compile(r"\p{Lu}\p{Ll}+|\p{Ll}+|\p{Lu}+(?!\p{Ll})")
"""Words within an identifier, such as getTideLevel and XMLHttpRequest."""
_THIN = regex.compile(r"(?<=\p{N})[\u00a0\u2007\u2009\u202f](?=\p{N}{3}(?!\p{N}))")
"""Blanks that separate thousands."""
_POINT = regex.compile(r"(?<=\p{N})[.,](?=\p{N})")
_MIXED = regex.compile(rf"(?=.*\p{{N}})(?=.*\p{{L}})(?:{_RUNS.pattern})+")
_GROUPED = regex.compile(r"\d{1,3}(?:([.,'’])\d{3})(?:\1\d{3})*(?:(?!\1)[.,]\d+)?|\d+[.,]\d+")
_NUMBER = regex.compile(rf"(?<![\d.,'’])(?:{_GROUPED.pattern})(?![\d.,'’])")
_LETTERS = regex.compile(r"\p{L}(?:\P{L}\p{L})*")
_LATIN = regex.compile(r"LATIN SMALL (?:LETTER|LIGATURE) (?:DOTLESS )?([A-Z]{1,2})(?: WITH .*)?")
_STEMMED = (
    "ar=arabic da=danish de=german el=greek en=english es=spanish fi=finnish fr=french hu=hungarian it=italian "
    "nl=dutch no=norwegian nb=norwegian pt=portuguese ro=romanian ru=russian sv=swedish ta=tamil tr=turkish"
)
_STEMMERS = dict(pair.split("=") for pair in _STEMMED.split())
"""Snowball's stemmers, by the code of their language."""
_CACHED = 100_000
"""Words whose terms are remembered."""


class Term(NamedTuple):
    """A term, and the range of characters that it stands for."""

    text: str
    start: int
    end: int


class TermAnalyzer:
    """Cuts texts into terms: lower case, without accents and typographic variants, stemmed where the language is known.

    A compound gives its parts and the joined word, so that it meets both spellings. Scripts without spaces give single
    characters and pairs of neighbouring ones.
    """

    def __init__(self, language: str) -> None:
        """`language` is a two-letter code, such as "en"."""
        self._stemmer: tantivy.TextAnalyzer | None = None
        if language in _STEMMERS:
            stemmer = tantivy.Filter.stemmer(_STEMMERS[language])
            self._stemmer = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.raw()).filter(stemmer).build()
        self._stop_words = _stop_words(language)
        self._fold = lru_cache(_CACHED)(self._folded)
        self._forms = lru_cache(_CACHED)(self._all_forms)

    def __call__(self, text: str) -> Iterator[Term]:
        """Yield the terms of a text, by where they begin; a compound before its parts."""
        return self._terms(text)

    def texts(self, text: str) -> list[str]:
        """The terms of a text without their places, in order."""
        found: list[str] = []
        for match in _TERM.finditer(_normalised(text)):
            found += (term for term, _, _ in self._forms_of(match))
        return found

    def of_question(self, question: str) -> list[str]:
        """The terms of a question, in order, repeated as there; without stop words, unless it has no others.

        Stop words in texts do no harm: a word in nearly every text weighs next to nothing. Question words are rare in
        texts and would weigh much. Characters of a script without spaces count in pairs, unless one stands alone.
        """
        found = list(self._terms(question, pairs_alone=True))
        telling = [term for term in found if question[term.start : term.end].casefold() not in self._stop_words]
        return [term.text for term in telling or found]

    def _terms(self, text: str, *, pairs_alone: bool = False) -> Iterator[Term]:
        string, places = _with_places(text)
        for match in _TERM.finditer(string):
            for term, start, end in self._forms_of(match, pairs_alone=pairs_alone):
                if places is None:
                    yield Term(term, match.start() + start, match.start() + end)
                else:
                    yield Term(term, places[match.start() + start][0], places[match.start() + end - 1][1])

    def _forms_of(self, match: regex.Match[str], *, pairs_alone: bool = False) -> Sequence[Term]:
        """The terms of a match, with places from its start."""
        if match["run"] is not None:
            return _of_run(match[0], pairs_alone)
        if match["emoji"] is not None:
            return [Term(_IGNORED.sub("", match[0]), 0, len(match[0]))]
        return self._forms(match[0])

    def _all_forms(self, whole: str) -> tuple[Term, ...]:
        """The terms of a word or compound: as a whole if that says more than the parts, and the parts."""
        places = [found.span() for found in _PARTS.finditer(whole)]
        if len(places) > 1 and whole[places[-1][0] :] in ("s", "S") and whole[places[-2][1]] in _APOSTROPHES:
            whole = whole[: places[-2][1]]  # "dog's" is found as "dog"
            places.pop()
        if _GROUPED.fullmatch(whole):
            joined, numbers = _numbers(whole), []
        else:
            joined = self._as_one(whole, [whole[start:end] for start, end in places])
            numbers = [Term(each, *found.span()) for found in _NUMBER.finditer(whole) for each in _numbers(found[0])]
        with_signs = [(0, places[0][1])] * (whole[0] == ".") + [(places[-1][0], len(whole))] * (whole[-1] in "+#")
        with_signs += [found.span() for found in _AND.finditer(whole)]
        signed = [Term(self._bare(whole[start:end]).replace(" ", ""), start, end) for start, end in with_signs]
        parts = [Term(self._fold(whole[start:end]), start, end) for start, end in places]
        if signed or (joined and _LETTERS.fullmatch(whole)):  # single letters say nothing alone
            parts = [part for part in parts if part.end - part.start > 1]
        pieces = [
            Term(self._fold(piece[0]), start + piece.start(), start + piece.end())
            for start, end in places
            for piece in _pieces(whole[start:end])
        ]
        return (*signed, *(Term(each, 0, len(whole)) for each in joined), *numbers, *parts, *pieces)

    def _as_one(self, whole: str, parts: Sequence[str]) -> list[str]:
        """What a compound is called as a whole, if anything."""
        contracted = len(parts[-1]) <= 2 and any(each in whole for each in _APOSTROPHES)
        # Of longer ones, as of state-of-the-art and docs.python.org, nobody writes the joined word, unless they are
        # codes, which have numbers, such as AB-1234-XY, or single letters, such as U.S.A.
        short = len(parts) == 2 or any(map(str.isdigit, whole)) or _LETTERS.fullmatch(whole)
        if len(parts) == 1 or "&" in whole or contracted or not short:
            return []
        numbers = ("".join(_PARTS.findall(piece)) for piece in _POINT.split(whole))  # version 1.2.3 is not 123
        return [self._fold(".".join(numbers))]

    def _folded(self, word: str) -> str:
        plain = _unpointed(word)
        if self._stemmer is not None:
            plain = (self._stemmer.analyze(plain) or [plain])[0]
        return _unaccented(plain)

    @staticmethod
    def _bare(word: str) -> str:
        return _unaccented(_unpointed(word))


def _pieces(word: str) -> Sequence[regex.Match[str]]:
    """Runs of letters and of digits in a word that has both, and the words of an identifier; none otherwise."""
    if _MIXED.fullmatch(word):
        return list(_RUNS.finditer(word))
    humps = list(_HUMPS.finditer(word)) if _HUMPED.fullmatch(word) else []
    return humps if len(humps) > 1 else []


def _of_run(run: str, pairs_alone: bool) -> list[Term]:
    """Single characters and pairs of neighbouring ones; pairs alone if there are any and they are asked for."""
    places = [each.span() for each in _CLUSTER.finditer(run)]
    found = []
    for at, (start, end) in enumerate(places):
        if not pairs_alone or len(places) == 1:
            found.append(Term(run[start:end], start, end))
        if at + 1 < len(places):
            after = places[at + 1][1]
            found.append(Term(run[start:after], start, after))
    return found


def _normalised(text: str) -> str:
    """Compatible characters as one, raised ones apart from the word before them, blanks between thousands as ’."""
    return text if text.isascii() else unicodedata.normalize("NFKC", _RAISED.sub("‑", _THIN.sub("’", text)))


def _with_places(text: str) -> tuple[str, list[tuple[int, int]] | None]:
    """The normalised text, and where each of its characters comes from; None: from the same place."""
    whole = _normalised(text)
    if whole == text:
        return text, None
    string, places = "", []
    for cluster in _CLUSTER.finditer(text):
        raised = "‑" * bool(_RAISED.match(text, cluster.start()))
        plain = raised + unicodedata.normalize("NFKC", "’" if _THIN.match(text, cluster.start()) else cluster[0])
        string += plain
        places += [cluster.span()] * len(plain)
    return string, places


def _numbers(whole: str) -> list[str]:
    """A number without separators of thousands, with a point before decimals; both ways if it may be either."""
    separators = [each for each in whole if not each.isdigit()]
    plain = regex.sub(r"\D", "", whole)
    last = len(regex.split(r"\D", whole)[-1])
    decimal = plain[:-last] + "." + plain[-last:]
    if len(set(separators)) > 1:
        return [decimal, plain[:-last]]
    if len(separators) > 1:
        return [plain]
    return [decimal, plain] if last == 3 else [decimal]


def _unpointed(word: str) -> str:
    """Lower case, without invisible characters and the vowel signs of Arabic, Hebrew and Syriac; digits as 0 to 9."""
    word = _IGNORED.sub("", word)
    if word.isascii():
        return word.lower()
    found = unicodedata.normalize("NFD", word.casefold())
    found = "".join(
        str(unicodedata.decimal(each, each)) for each in found if not 10 <= unicodedata.combining(each) <= 36
    )
    return unicodedata.normalize("NFC", found)


def _unaccented(word: str) -> str:
    """Without accents, which have the combining classes from 200, and strokes; ligatures as their letters."""
    if word.isascii():
        return word
    bare = (each for each in unicodedata.normalize("NFD", word) if unicodedata.combining(each) < 200)
    return "".join(map(_base_letter, bare))


@lru_cache
def _base_letter(character: str) -> str:
    """The letters that a Latin one is named after, such as l of ł and ae of æ; others as they are."""
    found = None if character.isascii() else _LATIN.fullmatch(unicodedata.name(character, ""))
    return character if found is None else found[1].lower()


def _stop_words(language: str) -> set[str]:
    """SpaCy's stop words of a language; none of one that it does not know."""
    from spacy.util import get_lang_class  # imports torch

    try:
        return set(get_lang_class(language).Defaults.stop_words)
    except ImportError:
        return set()


# --- Operators of a question ------------------------------------------------------------------------------------------

LONGEST_QUERY = 16
"""Words of the longest question in which quotation marks and minus signs are operators, not prose."""
_QUOTED = '"([^"]+)"|“([^”“]+)[”“]|„([^“”]+)[“”]|«([^»]+)»'
_PHRASE = regex.compile(_QUOTED)
_MINUS = regex.compile(rf"(?<!\S)-(?:{_QUOTED}|(\p{{L}}[\p{{L}}\p{{M}}\p{{N}}]+))(?=[\s?!.,;]|$)")
_SPACED = regex.compile(rf"(?V1)[[\p{{L}}\p{{N}}_]--[{UNSPACED}]]")
"""Characters beside which a word may end."""
_EITHER = str.maketrans(dict.fromkeys("'’", "['’]"))


class ParsedQuestion(NamedTuple):
    """A question without its operators, and what they ask, as Chroma's conditions on a passage's text."""

    text: str
    conditions: list[dict[str, Any]]

    @classmethod
    def of(cls, question: str) -> ParsedQuestion:
        """Parse the operators. A minus before a single letter, or a second one, is none: `-e`, `--force`."""
        if len(question.split()) > LONGEST_QUERY:
            return cls(question, [])
        conditions = []
        for match in _MINUS.finditer(question):
            conditions += [{"$not_regex": pattern} for pattern in _patterns(match)]
        text = _MINUS.sub(" ", question)
        for match in _PHRASE.finditer(text):
            conditions += [{"$regex": pattern} for pattern in _patterns(match)]
        return cls(_PHRASE.sub(lambda match: f" {match[match.lastindex or 0]} ", text), conditions)


def _patterns(match: regex.Match[str]) -> list[str]:
    """The pattern of a quoted phrase or a word: upper or lower case, with any white space; none for blanks."""
    words = str(match[match.lastindex or 0]).split()
    if not words:
        return []
    pattern = r"\s+".join(re.escape(word).translate(_EITHER) for word in words)
    before, after = (r"\b" * bool(_SPACED.match(edge)) for edge in (words[0][0], words[-1][-1]))
    return [f"(?i){before}{pattern}{after}"]
