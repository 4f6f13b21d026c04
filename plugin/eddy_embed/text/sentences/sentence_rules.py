"""Where a sentence ends: rules over characters and spaCy's tokens."""

from __future__ import annotations

import importlib.util
import pkgutil
import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, cast

from eddy_embed.text.sentences import lexicon

INVISIBLE = "\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
"""Soft hyphen, zero-width and direction marks: not whitespace to Python, and nothing to see."""

VISIBLE = re.compile(rf"[^\s\x00-\x1f\x7f-\x9f\ufe00-\ufe0f{INVISIBLE}]")

CJK = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003134f"

QUOTES_CLOSED = "\"'”’“‘»«›‹」』〉》〟"
"""Marks that close a quotation when they follow a stop directly: German closes with “, and with « as well."""

CLOSERS = rf"\"'”’“‘»«›‹」』〉》〟)\]}}）］｝】〕*_~`{INVISIBLE}"

OPENERS = rf"\"'“”„‚‘’«»‹›「『〈《〝(\[{{（［｛【〔¿¡*_~`–—\-{INVISIBLE}"

STRONG = "!?‼‽⁇⁈⁉"
"""Stops that end a sentence whatever the word before them is."""

_EXTRA_STOPS = "།༎។៕"
GREEK_QUESTION = ";\u037e"
"""What ends a question in Greek, after a Greek letter."""

_NOTE = r"\d{1,3}(?:[,–-][ \xa0]?\d{1,3})*"
_EMOJI = "\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff\U0001f3fb-\U0001f3ff\ufe0f\u200d\u20e3"

NEXT = re.compile(rf"[\s{OPENERS}]*")
WORD = re.compile(r"[^\W_]+")
ALNUM = re.compile(r"[^\W_]")
CJK_CHARACTER = re.compile(f"[{CJK}]")


def wide_stops(inventory: Iterable[str]) -> str:
    """Return the stops that need no space after them: spaCy's of all scripts but Latin."""
    return "".join(sorted((set(inventory) | set(_EXTRA_STOPS)) - set(STRONG + ".…")))


def candidates(wide: str) -> re.Pattern[str]:
    """Compile the expression for a run of stops with everything that closes with it.

    Group ``run`` is the stops alone, ``note`` the digits of a footnote. Brackets, quotes, further stops, footnote
    marks, a quotation mark between spaces as in French, and emoji before the next space belong to the sentence that the
    stop ends.
    """
    stops = re.escape(wide + STRONG) + ".…"
    return re.compile(
        rf"(?P<run>\.(?:[ \xa0]\.){{2,}}|[{stops}]+|(?<=[\u0370-\u03ff\u1f00-\u1fff])[{GREEK_QUESTION}])"
        rf"(?:[{CLOSERS}{stops}]|\[{_NOTE}\]|[¹²³⁰⁴-⁹])*"
        rf"(?P<note>(?:(?<=[^\W\d_][.!?…])|(?<=[.!?…][\"'”’»)]))\d{{1,3}}(?:[,–-]\d{{1,3}})*(?=\s))?"
        rf"(?:[ \xa0\u202f][»›](?=[\s.,;:!?)\]]|$)|[ ]\"(?=\s|$))?"
        rf"(?:(?:[ \xa0]?[{_EMOJI}])+(?=\s|$))?"
    )


_BORDERS = tuple(
    re.compile(pattern)
    for pattern in (
        r"[.!?…;:][\"'”’»)\]]*(?=\s)|[。！？；：][」』”’）]*|\s[—–](?=\s)|—",
        r",[\"'”’»)\]]*(?=\s)|[，、؛،]",
        r"(?=[\n\r])",
        r"(?=\s)",
    )
)
"""Borders from the best to the least: stop, semicolon, colon or dash; comma; line break; any whitespace."""

_LEAST_SHARE = 0.25
_JOINERS = "\u200d\u034f"


def cut(text: str, start: int, end: int, max_chars: int) -> Iterator[tuple[int, int]]:
    """Cut text, stripped from `start` to `end`, into stripped spans of at most ``max_chars`` characters.

    Each span ends at the last border of the best kind within the limit; borders in its first quarter don't count, so
    that spans don't become tiny. Without a border it ends at the limit, but not inside a combining sequence, an emoji
    joined from several, a flag, or a Hangul syllable, unless that alone is longer than the limit.
    """
    while end - start > max_chars:
        border = _border(text, start, start + max_chars)
        piece = text[start:border]
        yield start, start + len(piece.rstrip())
        start = border
        while text[start].isspace():
            start += 1
    yield start, end


def _border(text: str, start: int, limit: int) -> int:
    early = start + 1 + int((limit - start) * _LEAST_SHARE)
    for pattern, least in zip(_BORDERS, (early, early, start + 1, start + 1), strict=True):
        # One more character than the span may hold lets a border be seen that ends exactly at the limit.
        ends = [match.end() for match in pattern.finditer(text, least - 1, limit + 1) if least <= match.end() <= limit]
        if ends:
            return ends[-1]
    border = limit
    while border > start + 1 and not _may_part(text, border):
        border -= 1
    return border if border > start + 1 or _may_part(text, start + 1) else limit


def _may_part(text: str, at: int) -> bool:
    """Return whether the character at an offset begins a new grapheme, as far as a short look back can tell."""
    before, after = text[at - 1], text[at]
    if unicodedata.category(after)[0] == "M" or after in _JOINERS or before in _JOINERS:
        return False
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\u1160" <= after <= "\u11ff" or (before == "\r" and after == "\n"):
        return False
    if "\U0001f1e6" <= after <= "\U0001f1ff":
        first = at
        while first > max(0, at - 64) and "\U0001f1e6" <= text[first - 1] <= "\U0001f1ff":
            first -= 1
        return (at - first) % 2 == 0
    return not "\ud800" <= before <= "\udbff"


_DOTTED = re.compile(r"(?<![^\W_])(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}$")
_SPACED = re.compile(r"(?<![^\W_])(?:[^\W\d_]\.[ \xa0\u202f\u2009]?)+[^\W\d_]$")
_ENUMERATOR = re.compile(r"[\s(\[>*_#\"'“–—•-]*(?:\d{1,3}|\d+(?:\.\d+)+|[^\W\d_]|[ivx]{1,5}|[IVXLC]{1,6})[)\]]?$")
_AFTER_COLON = re.compile(r":\s+\(?\d{1,2}$")
_SYMBOL_NUMBER = re.compile(r"(?:[IVXLC]+|[A-Z])\b")
_ROMAN = re.compile(r"[IVXLCDM]{2,}$")
_MIXED_CASE = re.compile(r"[^\W\d_]{1,3}[A-Z]")
_ADDRESS = re.compile(r"(?:@|://|www\.)\S*$")
_DATE = re.compile(r"\d{1,2}\.|\d{4}\b")
_ADVERB = re.compile(r"[A-Z]\w+ly,\s")
_LAST_WORD = re.compile(r"([^\W_]+)[\W_]*$")
_UNIT = re.compile(r"(?:\d\s?|°)[^\W\d_]$")
_NOT_A_START = ",;:)]}»”%、，；：）」』"
_JAPANESE_GOES_ON = re.compile(r"\s*(?:と|って|っ|な|の|を|は|が|も|に|で|、|，)")
_CHINESE_SPEECH = re.compile(r"[^\s，。！？；：“”]{0,3}?[说說道问問喊答叫]")
_ATTRIBUTION = re.compile(
    rf"(?:I|(?!(?:He|She|They|We|It|You)\b)[A-Z][\w'’.-]*(?:\s+[A-Z][\w'’.-]*){{0,2}})\s+(?:{lexicon.SPEECH})\b"
)
_BRACKETS = re.compile(r"\((?:[^()]|\([^()]{0,200}\)){1,600}?\)|（[^（）]{1,600}）")
_LOOK_BACK = 48
_LOOK_AHEAD = 8


@dataclass(frozen=True, slots=True)
class _Stop:
    """A run of stops that might end a sentence, and its context."""

    text: str
    since: int  # where the sentence that it might end begins
    start: int
    run: str
    end: int  # after the stops and all that closes with them
    next: int  # where the next word, number or symbol begins
    next_word: str
    has_note: bool = False  # digits of a footnote follow

    @property
    def before(self) -> str:
        return self.text[max(self.since, self.start - _LOOK_BACK) : self.start]

    @property
    def follower(self) -> str:
        return self.text[self.next]


class Rules:
    """The rules of a language.

    Args:
        language: spaCy's code of the language.
        kept_whole: Words that spaCy's tokenizer keeps together with their stop, given without it.
        stops: spaCy's inventory of stops of all scripts.
        word_before: Returns the token in a run of characters that a stop at an offset belongs to or follows.
    """

    def __init__(
        self, language: str, kept_whole: Iterable[str], stops: Iterable[str], word_before: Callable[[str, int], str]
    ) -> None:
        self.word_before = word_before
        self.kept_whole = frozenset(word for word in kept_whole if len(word) > 1 and word[0].isalpha())
        self.wide = frozenset(wide_stops(stops))
        self.candidates = candidates("".join(sorted(self.wide)))
        self.starters = lexicon.STARTERS.get(language, frozenset())
        self.titles = lexicon.TITLES | lexicon.TITLES_OF.get(language, frozenset())
        self.small_titles = {word for word in lexicon.TITLES_OF.get(language, ()) if len(word) > 1}
        self.has_ordinal_stop = language in lexicon.ORDINAL_STOP

    def boundaries(self, text: str) -> list[int]:
        """Return rising ends of sentences inside a block without trailing whitespace, its own end excluded."""
        ends: list[int] = []
        is_lower = text.islower()
        since = quotes = counted = 0
        first_word = _first_word(text, 0)
        brackets = _BRACKETS.finditer(text)
        bracket = next(brackets, None)
        for match in self.candidates.finditer(text):
            while bracket and bracket.end() <= match.end():
                bracket = next(brackets, None)
            inside = bracket and first_word < bracket.start() < match.start()
            if inside or not self._may_stop(text, match):
                continue
            end = match.end()
            if text.endswith(' "', match.start(), end):
                quotes, counted = quotes + text.count('"', counted, end - 1), end - 1
                # After an even number of marks this one opens what follows.
                end -= 2 * (quotes % 2 == 0)
            position = NEXT.match(text, end).end()  # type: ignore[union-attr]  # it matches the empty string
            if position >= len(text):
                break
            following = WORD.match(text, position)
            word, has_note = following.group() if following else "", bool(match["note"])
            stop = _Stop(text, since, match.start(), match["run"], end, position, word, has_note)
            if first_word < match.start() and self._ends(stop, is_lower):
                since = counted = end
                quotes = 0
                first_word = _first_word(text, since)
                ends.append(since)
        if ends and first_word >= len(text):
            ends.pop()
        return ends

    def _may_stop(self, text: str, match: re.Match[str]) -> bool:
        end = match.end()
        if end >= len(text) or text[end].isspace():
            return end < len(text)
        run = match["run"]
        if run[-1] in self.wide:
            # A full-width full stop is a decimal point too.
            return not (text[end].isdigit() and text[match.start() - 1 : match.start()].isdigit())
        before = CJK_CHARACTER.match(text, match.start() - 1) if match.start() else None
        after = CJK_CHARACTER.match(text, end)
        return bool(before and after) if run[-1] in ".…" else bool(before or after)

    def _ends(self, stop: _Stop, is_lower: bool) -> bool:
        text = stop.text
        if stop.follower in _NOT_A_START:
            return False
        inverted = any(mark in text[stop.end : stop.next] for mark in "¿¡")
        small = stop.follower.islower() and not inverted and not _MIXED_CASE.match(text, stop.next)
        if small and not is_lower:
            return False
        if any(mark in STRONG or mark in self.wide or mark in GREEK_QUESTION for mark in stop.run):
            return self._ends_strongly(stop)
        if stop.has_note and (len(word := self._word_before(stop).lower()) < 2 or word in lexicon.NUMBERED):
            return False
        if len(stop.run) > 1 or stop.run == "…":
            said = _LAST_WORD.search(stop.before)
            repeats = said is not None and said[1].casefold() == stop.next_word.casefold()
            return not repeats and not small and not stop.follower.isdigit()
        return not self._is_abbreviation(stop, is_lower)

    def _ends_strongly(self, stop: _Stop) -> bool:
        closing = stop.text[stop.start + len(stop.run) : stop.end]
        if closing and closing[0] in ")]" and stop.text[stop.start - 1 : stop.start] in ("(", "["):
            return False
        if any(mark in QUOTES_CLOSED for mark in closing):
            if _ATTRIBUTION.match(stop.text, stop.next) or _JAPANESE_GOES_ON.match(stop.text, stop.end):
                return False
            return not _CHINESE_SPEECH.match(stop.text, stop.end)
        return True

    def _is_abbreviation(self, stop: _Stop, is_lower: bool) -> bool:
        """Return whether a single stop belongs to the word or number before it and the sentence goes on."""
        is_near = stop.start - stop.since < _LOOK_BACK
        if is_near and _ENUMERATOR.match(stop.text[stop.since : stop.start]):
            return True
        word = self._word_before(stop)
        if not word or _ADDRESS.search(stop.before):
            return False
        begins = (stop.next_word.capitalize() if is_lower else stop.next_word) in self.starters
        begins = begins or bool(_ADVERB.match(stop.text, stop.next))
        if word.isdecimal():
            return self._is_ordinal(stop, word, begins)
        low, capital = word.lower(), word[0].isupper() or is_lower
        if low in lexicon.NEVER_LAST:
            return True
        if low in self.titles and (capital or low in self.small_titles):
            return low != "st" or not begins or not _follows_name(stop, word)
        if low in lexicon.NUMBERED and _is_number(stop, low):
            return True
        dotted = _DOTTED.search(stop.before) or _SPACED.search(stop.before)
        if dotted or (len(word) == 1 and word.lower() != word.upper()):
            return self._is_initial(stop, dotted.group() if dotted else word, begins)
        if low in lexicon.LISTING_LAST:
            return stop.follower.isdigit() or stop.follower.islower()
        if low in lexicon.MAY_BE_LAST or word in self.kept_whole:
            return not begins
        return self.has_ordinal_stop and not begins and bool(_ROMAN.match(word)) and stop.follower.isalpha()

    def _word_before(self, stop: _Stop) -> str:
        """Return the word that ends with the stop, without it; nothing if whitespace or the sentence's start does."""
        run = stop.before.rsplit(maxsplit=1)[-1:]
        if not run or stop.before[-1].isspace():
            return ""
        closing = stop.text[stop.start : min(stop.end, stop.start + _LOOK_AHEAD)].split()[0]
        word = self.word_before(run[0] + closing, len(run[0]))
        return word[max(word.rfind("/"), word.rfind("(")) + 1 :]

    def _is_ordinal(self, stop: _Stop, word: str, begins: bool) -> bool:
        if len(word) <= 2 and _AFTER_COLON.search(stop.before):
            return True
        if not self.has_ordinal_stop or len(word) > 2:
            return False
        return bool(_DATE.match(stop.text, stop.next)) or (stop.follower.isalpha() and not begins)

    def _is_initial(self, stop: _Stop, letters: str, begins: bool) -> bool:
        key = "".join(letters.split()).lower()
        if key in lexicon.NEVER_LAST:
            return True
        if key in lexicon.CLOCK:
            goes_on = stop.follower.isdigit() or stop.follower.islower()
            return goes_on or stop.next_word in lexicon.CLOCK_FOLLOWERS
        if key in lexicon.LISTING_LAST:
            return stop.follower.islower()
        if len(letters) == 1 and _UNIT.search(stop.before):
            return False
        if letters == "I":
            said = _LAST_WORD.search(stop.before[:-1])
            return not (said and said[1].islower()) and not begins
        return not begins


def _first_word(text: str, start: int) -> int:
    match = ALNUM.search(text, start)
    return match.start() if match else len(text)


def _follows_name(stop: _Stop, word: str) -> bool:
    """Return whether "St." follows a name, as in "Main St.", and is no saint."""
    said = _LAST_WORD.search(stop.before[: -len(word)])
    return said is not None and said[1][0].isupper()


def _is_number(stop: _Stop, low: str) -> bool:
    if stop.follower.isdigit():
        return True
    return low != "no" and bool(_SYMBOL_NUMBER.match(stop.text, stop.next))


_MOST_NEW_STRINGS = 200_000
_CACHED_WORDS = 20_000
_pipelines: dict[str, SpacyRules] = {}
_pipelines_lock = threading.Lock()


@cache
def languages() -> tuple[str, ...]:
    """Return the codes of the languages that spaCy has data for, without loading spaCy."""
    spec = importlib.util.find_spec("spacy")
    places = [f"{place}/lang" for place in (spec.submodule_search_locations or ())] if spec else []
    return tuple(sorted(module.name for module in pkgutil.iter_modules(places) if module.ispkg))


class SpacyRules:
    """A blank spaCy pipeline of a language, whose tokenizer gives the rules the word before a stop.

    spaCy's tokenizer splits every run of characters between whitespace by itself. So it only gets the runs that hold a
    full stop: the tokens are those of the whole text, in a tenth of the time, and its vocabulary, which never shrinks,
    stays small.
    """

    def __init__(self, language: str) -> None:
        import spacy
        from spacy.pipeline import Sentencizer

        # spaCy's own rule tokenizer for every language: those of Japanese, Korean, Thai and Vietnamese need more
        # packages, and sentences would depend on whether these are installed.
        tokenizer = {"nlp": {"tokenizer": {"@tokenizers": "spacy.Tokenizer.v1"}}}
        self.nlp = spacy.blank(language, config=tokenizer)
        kept_whole = {str(word)[:-1] for word in cast(Any, self.nlp.tokenizer).rules if str(word).endswith(".")}
        self.word_before = lru_cache(_CACHED_WORDS)(self._word_before)
        self.rules = Rules(language, kept_whole, Sentencizer.default_punct_chars, self.word_before)
        self.lock = threading.Lock()
        self.known_strings = len(self.nlp.vocab.strings)

    @property
    def is_full(self) -> bool:
        """Whether the vocabulary has grown so much that a new pipeline should replace this one."""
        return len(self.nlp.vocab.strings) - self.known_strings > _MOST_NEW_STRINGS

    def _word_before(self, run: str, stop: int) -> str:
        """Return the token that a stop in a run without whitespace belongs to or follows, without the stop."""
        with self.lock:
            span = self.nlp.make_doc(run).char_span(stop - 1, stop, alignment_mode="expand")
        return run[span.start_char : stop] if span is not None else ""


def get_pipeline(language: str) -> SpacyRules:
    """Return the shared pipeline of a language, loading spaCy at the first call."""
    pipeline = _pipelines.get(language)
    if pipeline is not None and not pipeline.is_full:
        return pipeline
    with _pipelines_lock:
        pipeline = _pipelines.get(language)
        if pipeline is None or pipeline.is_full:
            pipeline = _pipelines[language] = SpacyRules(language)
        return pipeline
