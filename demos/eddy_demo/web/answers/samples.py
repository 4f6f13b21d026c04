"""Questions that the library's documents answer, to click: made in the background, by rules, from their sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain, zip_longest

from chroma_eddy import DocumentRow, Index
from eddy_demo.library.samples import read_samples, write_samples
from eddy_demo.web.answers.answering import answer_question, quoted
from eddy_demo.web.answers.sample_rules import question_of, without_markup
from eddy_demo.web.library_reader import LibraryReader
from eddy_embed.text.sentences import Segmenter

_OFFERED = 3
"""Maximum number of questions that are made of a document, and that the page offers."""
_TRIED = 12
"""Number of questions of a document that are asked at most, to see whether it answers them."""
_KEPT = 100
"""Number of documents whose questions are kept."""
_READ_CHARACTERS = 100_000
"""Number of a document's first characters of which questions are made."""


class _Urgent(Exception):
    """Something else waits."""


class SampleQuestions:
    """Sample questions of one library; any thread may read, one makes them."""

    def __init__(self, reader: LibraryReader) -> None:
        self._reader = reader
        self._made = read_samples(reader.folder)
        self._failed: set[str] = set()  # keys of documents that the next server tries again
        self._complete = -1  # version of the library that has all its questions
        self.version = 0  # changes whenever questions are made

    def offered(self, document: str | None = None) -> list[str]:
        """Return up to three questions of a document, or of several, beginning with those made last."""
        found: list[list[str]] = []
        for key, questions in reversed(self._made.items()):
            id_ = key.split(" ")[0]
            if questions and document in (None, id_) and self._key(self._reader.entry(id_)) == key:
                found.append(questions)
            if len(found) == _OFFERED:
                break
        mixed = dict.fromkeys(chain.from_iterable(zip_longest(*found)))
        return [question for question in mixed if question][:_OFFERED]

    def make_next(self, preferred: Sequence[str], is_urgent: Callable[[], bool]) -> bool:
        """Make the questions of one more document, and forget those of removed ones; return whether any changed.

        Args:
            preferred: Ids of documents to begin with.
            is_urgent: Whether something else waits; the document's turn then comes again.
        """
        version = self._reader.version
        if self._complete == version or self._reader.index is None:
            return False
        entries = {self._key(entry): entry for entry in self._reader.entries()}
        made = {key: questions for key, questions in self._made.items() if key in entries}
        tried = made.keys() | self._failed
        left = [key for key in entries if key not in tried and (len(tried) < _KEPT or entries[key].id in preferred)]
        if left:
            key = min(left, key=lambda key: entries[key].id not in preferred)
            try:
                made[key] = self._questions(entries[key], is_urgent)
            except _Urgent:
                return False
            except Exception:  # whoever opens the document is told what is wrong with it
                self._failed.add(key)
        else:
            self._complete = version
        if made == self._made:
            return False
        self._made = dict(list(made.items())[-_KEPT:])
        with suppress(OSError):  # a folder that cannot be written to keeps none
            write_samples(self._reader.folder, self._made)
        self.version += 1
        return True

    def _key(self, entry: DocumentRow | None) -> str:
        """Return the key of a version of a document in a version of the index; a rebuild may answer differently."""
        index = self._reader.index
        return "" if entry is None or index is None else f"{entry.id} {entry.digest} {index.settings.fingerprint}"

    def _questions(self, entry: DocumentRow, is_urgent: Callable[[], bool]) -> list[str]:
        """Return questions that a document answers."""
        text, spans = self._reader.read_consistently(lambda index: _read_sentences(index, entry))
        questions: list[str] = []
        tried = 0
        for start, end in spans:
            question = question_of(text[start:end], text)
            if question and question not in questions:
                if is_urgent():
                    raise _Urgent
                tried += 1
                if self._is_answered(question, entry.id, text[start:end], start):
                    questions.append(question)
            if len(questions) == _OFFERED or tried == _TRIED:
                break
        return questions

    def _is_answered(self, question: str, document: str, source: str, start: int) -> bool:
        """Whether a document answers first, with the sentence or below the heading that the question is made of."""
        sentences = quoted(answer_question(self._reader, question, 1))
        if not sentences or sentences[0]["document"] != document:
            return False
        own = [each for each in sentences if each["document"] == document]
        if source.startswith("#"):
            return any(without_markup(each["headings"].split(" > ")[-1]) == without_markup(source) for each in own)
        return any(each["start"] == start for each in own)


def _read_sentences(index: Index | None, entry: DocumentRow) -> tuple[str, list[tuple[int, int]]]:
    """Return the beginning of a document and the offsets of its sentences; "" if the document is gone."""
    documents = [] if index is None else list(index.documents([entry.id]))
    if index is None or not documents:
        return "", []
    text = documents[0].text[:_READ_CHARACTERS]
    return text, [(sentence.start, sentence.end) for sentence in Segmenter().sentences(text)]
