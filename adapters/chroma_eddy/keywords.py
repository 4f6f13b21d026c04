"""Keyword search: terms of texts and questions, BM25 over the rows of an index by tantivy, and where it is kept."""

from __future__ import annotations

import math
import re
import shutil
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple

import regex
import tantivy
from tantivy import Occur, Query

from chroma_eddy.database import translated_errors
from chroma_eddy.rows import RowBatch
from chroma_eddy.storage import MAIN, PAGE_SIZE, Storage
from chroma_eddy.types import DIGEST, VECTOR, under_headings
from eddy_embed.integrations.documents import DOCUMENT, HEADINGS

# --- Terms ------------------------------------------------------------------------------------------------------------

TERMS_VERSION = 6  # changes with the terms that a passage gives: those that another version stored are read anew
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
"""Scripts without spaces between words, and Korean, whose words carry their endings."""
_LETTER = rf"[[\p{{L}}\p{{N}}]--[{_UNSPACED}]]"
_WORD = rf"{_LETTER}(?:{_LETTER}|[\p{{M}}\p{{Cf}}])*"
_THIN = "[\u00a0\u2007\u2009\u202f]"  # blanks that separate thousands
_NUMBER = rf"\p{{N}}+(?:(?:[.,'’]|{_THIN}(?=\p{{N}}{{3}}(?!\p{{N}})))\p{{N}}+)+"
_SIGNS = r"(?<=\p{L})(?:\+\+(?![\p{L}+])|\+(?![\p{L}\p{N}+])|\#(?![\p{L}\p{N}#]))"
"""What belongs to the word before it: C++, A+, C#."""
_PART = rf"(?:{_NUMBER}|(?:(?<![\p{{L}}\p{{N}}.])\.(?=\p{{L}}))?{_WORD}(?:&{_WORD})*(?:{_SIGNS})?)"
"""A number, a word, or words with the signs that they are known by: .NET, R&D, C#."""
_APOSTROPHES = "'’‘ʼ"
_JOINT = rf"(?:[[\p{{Hyphen}}{_APOSTROPHES}]--\p{{Cf}}]|(?<!\b\p{{Ll}})\.|\.(?=\p{{N}}|\p{{L}}\b))"
"""What joins the parts of a compound: Wi-Fi, O'Brien, U.S.A., Ph.D., Node.js; no dot as in a.py."""
_TERM = regex.compile(
    rf"(?V1)(?P<run>[{_UNSPACED}][{_UNSPACED}\p{{M}}ーｰﾞﾟ]*)|(?P<emoji>(?=\p{{Extended_Pictographic}}|\p{{RI}})\X)"
    rf"|{_PART}(?:{_JOINT}{_PART})*"
)
_PARTS, _WORDS, _CLUSTER = regex.compile(rf"(?V1){_PART}"), regex.compile(rf"(?V1){_WORD}"), regex.compile(r"\X")
_IGNORED = regex.compile(r"[\p{Cf}\p{jt=C}\p{VS}\p{EMod}]")
_BETWEEN = regex.compile(r"[^\p{L}\p{N}\p{M}.,]|(?<!\p{N})[.,]|[.,](?!\p{N})")
"""Signs between the parts of a compound, except for points in numbers: version 1.2.3 is not 123."""
_GROUPED = regex.compile(r"\d{1,3}(?:([.,'’])\d{3})(?:\1\d{3})*(?:(?!\1)[.,]\d+)?|\d+[.,]\d+")
_SINGLE = regex.compile(r"\p{L}(?:\P{L}\p{L})*")
_RUNS = regex.compile(r"\p{L}[\p{L}\p{M}]+|\p{N}+")
_MIXED = regex.compile(rf"(?=.*\p{{N}})(?=.*\p{{L}})(?:{_RUNS.pattern})+")
_HUMPS = regex.compile(r"\p{Lu}\p{Ll}+|\p{Ll}+|\p{Lu}+(?!\p{Ll})")
"""Words within an identifier, such as getTideLevel and XMLHttpRequest."""
_HUMPED = regex.compile(r"(?:\p{Ll}{2,}|\p{Lu}+)?(?:\p{Lu}\p{Ll}{2,})+")
_LATIN = regex.compile(r"LATIN SMALL (?:LETTER|LIGATURE) (?:DOTLESS )?([A-Z]{1,2})(?: WITH .*)?")
_STEMMED = (
    "ar=arabic da=danish de=german el=greek en=english es=spanish fi=finnish fr=french hu=hungarian it=italian "
    "nl=dutch no=norwegian nb=norwegian pt=portuguese ro=romanian ru=russian sv=swedish ta=tamil tr=turkish"
)
_STEMMERS = dict(pair.split("=") for pair in _STEMMED.split())  # Snowball's stemmers, by the code of their language
_CACHED = 100_000  # words whose terms are remembered


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

    def __call__(self, text: str, *, pairs_alone: bool = False) -> Iterator[Term]:
        """Yield the terms of a text, by where they begin; a compound before its parts."""
        for match in _TERM.finditer(text):
            word, start = match[0], match.start()
            if match["run"] is not None:
                forms: Sequence[Term] = _of_run(word, pairs_alone)
            elif match["emoji"] is not None:
                forms = [Term(_IGNORED.sub("", word), 0, len(word))]
            else:
                forms = self._forms(word)
            yield from (Term(form.text, start + form.start, start + form.end) for form in forms)

    def texts(self, text: str) -> list[str]:
        """Return the terms of a text without their places, in order."""
        return [term.text for term in self(text)]

    def of_question(self, question: str) -> list[str]:
        """Return the terms of a question, in order, repeated as there; without stop words, unless it has no others.

        Stop words in texts do no harm: a word in nearly every text weighs next to nothing. Question words are rare in
        texts and would weigh much. Characters of a script without spaces count in pairs, unless one stands alone.
        """
        terms = list(self(question, pairs_alone=True))
        stop = self._stop_words
        telling = [term.text for term in terms if question[term.start : term.end].casefold() not in stop]
        return telling or [term.text for term in terms]

    def _all_forms(self, word: str) -> tuple[Term, ...]:
        """Return the terms of a word or compound: as a whole if that says more than the parts, and the parts."""
        plain = unicodedata.normalize("NFKC", re.sub(_THIN, "’", word))
        if plain != word:  # nobody knows where its parts come from
            return tuple(Term(form.text, 0, len(word)) for form in self(plain))
        parts = [match.span() for match in _PARTS.finditer(word)]
        last = parts[-1][0]
        if len(parts) > 1 and word[last:] in ("s", "S") and word[last - 1] in _APOSTROPHES:
            return self._forms(word[: last - 1])  # "dog's" is found as "dog"
        joined = self._joined(word, parts)
        forms = [Term(joined, 0, len(word))] if joined else []
        for start, end in parts:
            if end - start > 1 or not joined or not _SINGLE.fullmatch(word):  # single letters say nothing alone
                forms += (
                    Term(text, start + first, start + end_) for text, first, end_ in self._of_part(word[start:end])
                )
        return tuple(forms)

    def _joined(self, word: str, parts: Sequence[tuple[int, int]]) -> str:
        """Return what a compound is called as a whole; "" for nothing.

        Of longer ones, as of state-of-the-art and docs.python.org, nobody writes the joined word, unless they are
        codes, which have numbers, such as AB-1234-XY, or single letters, such as U.S.A.
        """
        short = len(parts) == 2 or any(map(str.isdigit, word)) or _SINGLE.fullmatch(word)
        contracted = parts[-1][1] - parts[-1][0] <= 2 and any(sign in word for sign in _APOSTROPHES)
        signed = any(not _WORDS.fullmatch(word, *part) and not word[slice(*part)][0].isdigit() for part in parts)
        if len(parts) == 1 or contracted or signed or not short:
            return ""
        return self._fold(_BETWEEN.sub("", word).replace(",", "."))

    def _of_part(self, part: str) -> list[Term]:
        """Return the terms of a number, a word, or words with signs; words of letters and digits give both."""
        words, forms = list(_WORDS.finditer(part)), list[Term]()
        if words[0][0] != part:
            plain = _unaccented(_unpointed(part))
            if regex.fullmatch(_NUMBER, part):
                forms = [Term(number, 0, len(part)) for number in _numbers(plain)]
            else:
                forms = [Term(plain, 0, len(part))]
                words = [word for word in words if len(word[0]) > 1]
        for word in words:
            spans = [(0, len(word[0])), *(piece.span() for piece in _pieces(word[0]))]
            forms += (Term(self._fold(word[0][a:b]), word.start() + a, word.start() + b) for a, b in spans)
        return forms

    def _folded(self, word: str) -> str:
        plain = _unpointed(word)
        if self._stemmer is not None:
            plain = (self._stemmer.analyze(plain) or [plain])[0]
        return _unaccented(plain)


def _of_run(run: str, pairs_alone: bool) -> list[Term]:
    """Return single characters and pairs of neighbouring ones; pairs alone if there are any and they are asked for."""
    characters = [match.span() for match in _CLUSTER.finditer(run)]
    pairs = [(one[0], other[1]) for one, other in pairwise(characters)]
    spans = pairs if pairs_alone and pairs else sorted([*characters, *pairs])
    return [Term(unicodedata.normalize("NFKC", run[start:end]), start, end) for start, end in spans]


def _pieces(word: str) -> Sequence[regex.Match[str]]:
    """Return runs of letters and of digits in a word that has both, and the words of an identifier; none otherwise."""
    if _MIXED.fullmatch(word):
        return list(_RUNS.finditer(word))
    humps = list(_HUMPS.finditer(word)) if _HUMPED.fullmatch(word) else []
    return humps if len(humps) > 1 else []


def _numbers(number: str) -> list[str]:
    """Return a number without separators of thousands, both ways if one may be either; a version as it is."""
    *groups, last = regex.split(r"\D", number)
    separators, before = regex.sub(r"\d", "", number), "".join(groups)
    if not _GROUPED.fullmatch(number):
        return [number]
    if len(set(separators)) > 1:
        return [f"{before}.{last}", before]
    if len(separators) > 1:
        return [before + last]
    return [f"{before}.{last}", before + last] if len(last) == 3 else [f"{before}.{last}"]


def _unpointed(word: str) -> str:
    """Return lower case, without invisible characters and Arabic, Hebrew and Syriac vowel signs; digits as 0 to 9."""
    word = _IGNORED.sub("", word)
    if word.isascii():
        return word.lower()
    letters = (c for c in unicodedata.normalize("NFD", word.casefold()) if not 10 <= unicodedata.combining(c) <= 36)
    return unicodedata.normalize("NFC", "".join(str(unicodedata.decimal(letter, letter)) for letter in letters))


def _unaccented(word: str) -> str:
    """Return it without accents, which have the combining classes from 200, and strokes; ligatures as their letters."""
    if word.isascii():
        return word
    bare = (letter for letter in unicodedata.normalize("NFD", word) if unicodedata.combining(letter) < 200)
    return "".join(map(_base_letter, bare))


@lru_cache
def _base_letter(character: str) -> str:
    """Return the letters that a Latin one is named after, such as l of ł and ae of æ; others as they are."""
    named = None if character.isascii() else _LATIN.fullmatch(unicodedata.name(character, ""))
    return character if named is None else named[1].lower()


def _stop_words(language: str) -> set[str]:
    """Return spaCy's stop words of a language; none of one that it does not know."""
    from spacy.util import get_lang_class  # imports torch

    try:
        return set(get_lang_class(language).Defaults.stop_words)
    except ImportError:
        return set()


# --- Operators of a question ------------------------------------------------------------------------------------------

LONGEST_QUERY = 16  # words of the longest question in which quotation marks and minus signs are operators, not prose
_QUOTED = '"([^"]+)"|“([^”“]+)[”“]|„([^“”]+)[“”]|«([^»]+)»'
_PHRASE = regex.compile(_QUOTED)
_MINUS = regex.compile(rf"(?<!\S)-(?:{_QUOTED}|(\p{{L}}[\p{{L}}\p{{M}}\p{{N}}]+))(?=[\s?!.,;]|$)")
_SPACED = regex.compile(rf"(?V1)[[\p{{L}}\p{{N}}_]--[{_UNSPACED}]]")  # characters beside which a word may end
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
        text = _MINUS.sub(" ", question)
        asked = [*(("$not_regex", match) for match in _MINUS.finditer(question))]
        asked += [("$regex", match) for match in _PHRASE.finditer(text)]
        conditions = [{operator: _pattern(words)} for operator, match in asked if (words := _quoted(match).split())]
        return cls(_PHRASE.sub(lambda match: f" {_quoted(match)} ", text), conditions)


def _quoted(match: regex.Match[str]) -> str:
    return str(match[match.lastindex or 0])


def _pattern(words: Sequence[str]) -> str:
    """Return the pattern of a phrase: upper or lower case, with any white space, between borders of words."""
    phrase = r"\s+".join(re.escape(word).translate(_EITHER) for word in words)
    before, after = (r"\b" * bool(_SPACED.match(edge)) for edge in (words[0][0], words[-1][-1]))
    return f"(?i){before}{phrase}{after}"


# --- BM25 -------------------------------------------------------------------------------------------------------------

Key = Literal["id", "document", "digest"]  # a row's own id, that of its document, and that of its document's version
IN_MEMORY = 50_000  # most rows whose texts are read for keyword search, of a database on a server or in memory
_WRITER_BYTES = 50_000_000  # memory of a writer, after which it saves a segment
_COMPLETE = "complete"  # file that says that all rows of the collection are indexed, and by which version of the terms
_BAR_FROM = 5_000  # fewest rows for whose reading a progress bar is shown


class Scored(NamedTuple):
    """BM25 of a row, its document and the version of that, and the number of its vector; -1 where it has none."""

    bm25: float
    document: str
    digest: str
    vector: int


class KeywordIndex:
    """BM25 (k1 = 1.2, b = 0.75) over the terms of rows, each text after the path of its headings.

    One process at a time writes, as the index's lock sees to; others see it after `refresh`.
    """

    def __init__(self, folder: Path | None, language: str) -> None:
        """Open or create it in a folder; None: in memory."""
        builder = tantivy.SchemaBuilder()
        for name in ("id", "document", "digest"):
            builder.add_text_field(name, stored=True, tokenizer_name="raw", index_option="basic")
        builder.add_integer_field("vector", stored=True)
        builder.add_text_field("terms", tokenizer_name="whitespace", index_option="freq")
        self._schema = builder.build()
        self.terms = TermAnalyzer(language)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self._index = tantivy.Index(self._schema, path=None if folder is None else str(folder))
        self.refresh()

    def __len__(self) -> int:
        """Number of rows."""
        return int(self._index.searcher().num_docs)

    def put(self, pages: Iterable[RowBatch]) -> None:
        """Write rows in place of those of the same ids."""
        with self._changing() as writer:
            for rows in pages:
                for id_, row, text in zip(rows.ids, rows.metadatas, rows.texts, strict=True):
                    writer.delete_documents_by_term("id", id_)
                    terms = " ".join(self.terms.texts(under_headings(text, row.get(HEADINGS, ""))))
                    about = {"document": str(row[DOCUMENT]), "digest": str(row[DIGEST]), "vector": row.get(VECTOR, -1)}
                    writer.add_document(tantivy.Document(id=id_, terms=terms, **about))

    def delete(self, key: Key, values: Iterable[str]) -> None:
        """Delete the rows that have one of some values."""
        with self._changing() as writer:
            for value in values:
                writer.delete_documents_by_term(key, value)

    @contextmanager
    def _changing(self) -> Iterator[tantivy.IndexWriter]:
        """Save the changes at the end, or none of them, and let another process write."""
        writer = self._index.writer(_WRITER_BYTES, 1)
        try:
            yield writer
            writer.commit()
        except BaseException:
            writer.rollback()
            raise
        finally:
            writer.wait_merging_threads()
        self.refresh()

    def refresh(self) -> None:
        """See what another process has committed."""
        self._index.reload()

    def best(
        self, terms: Sequence[str], most: int, among: Mapping[Key, Sequence[str]], *, hidden: Sequence[str]
    ) -> dict[str, Scored]:
        """Return at most `most` rows that share a term, by id, best first; a repeated term counts again.

        Each key of the rows is `among` some values, and they are of no `hidden` version.
        """
        if not terms:
            return {}
        parts = [(Occur.Must, self._any_of(terms)), *(self._one_of(key, values) for key, values in among.items())]
        if hidden:
            parts.append((Occur.MustNot, Query.term_set_query(self._schema, "digest", list(hidden))))
        return self._search(Query.boolean_query(parts), most)

    def scores(self, terms: Sequence[str], ids: Sequence[str]) -> dict[str, Scored]:
        """Score rows by their ids, 0 for those that share no term; ids that are not here are left out."""
        if not ids:
            return {}
        parts = [self._one_of("id", ids)]
        if terms:
            parts.append((Occur.Should, self._any_of(terms)))
        return self._search(Query.boolean_query(parts), len(ids))

    def weight(self, term: str) -> float:
        """Return the inverse document frequency of a term, as in its BM25; the highest for one that no row has."""
        # Deleted rows count until tantivy merges them away.
        frequency = min(int(self._index.searcher().doc_freq("terms", term)), len(self))
        return math.log1p((len(self) - frequency + 0.5) / (frequency + 0.5))

    def _any_of(self, terms: Sequence[str]) -> Query:
        queries = [
            Query.boost_query(Query.term_query(self._schema, "terms", term, index_option="freq"), float(repeats))
            for term, repeats in Counter(terms).items()
        ]
        return Query.boolean_query([(Occur.Should, query) for query in queries])

    def _one_of(self, key: Key, values: Sequence[str]) -> tuple[Occur, Query]:
        """Return the condition that a key is one of some values, which adds nothing to a score."""
        return Occur.Must, Query.const_score_query(Query.term_set_query(self._schema, key, list(values)), 0.0)

    def _search(self, query: Query, most: int) -> dict[str, Scored]:
        searcher, rows = self._index.searcher(), dict[str, Scored]()
        for score, address in searcher.search(query, max(most, 1), count=False).hits:
            entry = searcher.doc(address)
            stored = (entry[name][0] for name in ("document", "digest", "vector"))
            rows[entry["id"][0]] = Scored(float(score), *stored)
        return rows


class Keywords:
    """The keyword index of an index's rows: in its database's folder; in memory for a database elsewhere."""

    def __init__(self, storage: Storage, language: Callable[[], str]) -> None:
        """`language` gives the code of the index's language."""
        self._storage, self._language = storage, language
        self._on_disk: tuple[Path, KeywordIndex] | None = None
        self._in_memory: tuple[str, KeywordIndex] | None = None
        self._reading = Lock()

    @property
    def _complete(self) -> Path | None:
        """Folder in which all rows are indexed, as this version cuts their terms; None where there is none."""
        folder = self._storage.keywords_folder
        complete = None if folder is None else folder / _COMPLETE
        return folder if complete and complete.exists() and complete.read_text() == str(TERMS_VERSION) else None

    @property
    def missing(self) -> bool:
        """Whether the keyword index is to be on disk, and is not."""
        return self._storage.keywords_folder is not None and self._complete is None

    @property
    def too_many(self) -> bool:
        """Whether there are more rows than are read into memory, and no keyword index on disk."""
        return self._complete is None and self._storage.count(MAIN) > IN_MEMORY

    def current(self) -> KeywordIndex:
        """Return the keyword index as it is now; where none is on disk, read from all rows if others changed these."""
        with self._translated():
            if (folder := self._complete) is not None:
                index = self._open(folder)
                index.refresh()
                return index
            written = str(self._storage.known_metadata.get("eddy_written"))
            with self._reading:
                if self._in_memory is None or self._in_memory[0] != written:
                    index = KeywordIndex(None, self._language())
                    index.put(self._pages(show_progress=self._storage.count(MAIN) >= _BAR_FROM))
                    self._in_memory = written, index
                return self._in_memory[1]

    def put(self, rows: RowBatch) -> None:
        """Write rows, if their index is there."""
        with self._translated():
            if (index := self._writable()) is not None:
                index.put([rows])

    def delete(self, key: Key, values: Sequence[str]) -> None:
        """Delete the rows that have one of some values, if their index is there."""
        with self._translated():
            if values and (index := self._writable()) is not None:
                index.delete(key, values)

    def _writable(self) -> KeywordIndex | None:
        if (folder := self._complete) is not None:
            return self._open(folder)
        return self._in_memory[1] if self._in_memory else None

    def mark_written(self, before: str, token: str) -> None:
        """Note that the rows in memory are those of a token if they were those of the one `before` the change."""
        if self._in_memory is not None and self._in_memory[0] == before:
            self._in_memory = token, self._in_memory[1]

    def clear_memory(self) -> None:
        """Drop what was read into memory, of which nobody knows whether it is still so."""
        self._in_memory = None

    def rebuild(self) -> None:
        """Read the keyword index on disk from all rows again."""
        self.clear_memory()
        folder = self._storage.keywords_folder
        if folder is None:
            return
        with self._translated():
            (folder / _COMPLETE).unlink(missing_ok=True)  # first: nobody takes what is left for complete
            shutil.rmtree(folder, ignore_errors=True)
            self._on_disk = folder, KeywordIndex(folder, self._language())
            self._on_disk[1].put(self._pages())
            (folder / _COMPLETE).write_text(str(TERMS_VERSION))

    def _open(self, folder: Path) -> KeywordIndex:
        if self._on_disk is None or self._on_disk[0] != folder:
            self._on_disk = folder, KeywordIndex(folder, self._language())
        return self._on_disk[1]

    def _pages(self, *, show_progress: bool = False) -> Iterator[RowBatch]:
        """Yield the rows of the main collection, without those that something else has put there."""
        from rich.console import Console
        from rich.progress import track

        pages, total = self._storage.pages(MAIN, metadatas=True, documents=True), self._storage.count(MAIN) / PAGE_SIZE
        for rows in track(pages, "Reading keywords", total, console=Console(stderr=True), disable=not show_progress):
            yield rows.take([number for number, row in enumerate(rows.metadatas) if DOCUMENT in row])

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise tantivy's errors, which are all ValueErrors, as what they are: failures of the disk."""
        with translated_errors(self._storage.place):
            try:
                yield
            except ValueError as error:
                raise OSError(f"the keyword index: {error}; if it is damaged, check() makes it anew") from error
