"""`SentenceTextSplitter`: chunks of whole sentences with exact start indices."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document
from langchain_text_splitters import TextSplitter

from eddy_embed.encoding.validation import PASSAGE_SIZE
from eddy_embed.text.sentences import Segmenter

if TYPE_CHECKING:
    from typing_extensions import Self

    from langchain_eddy.embeddings import EddyEmbeddings


class SentenceTextSplitter(TextSplitter):
    """Splits texts into chunks of whole sentences; a chunk is an exact substring of its text.

    For passages embedded in the context of their document use `EddyChroma.ingest` or
    `embed_passages`, which need no splitter.

    Args:
        chunk_size: Maximum length of a chunk by `length_function`; a longer sentence is a chunk by itself.
        chunk_overlap: Maximum length of the sentences that the next chunk repeats.
        length_function: Measures a text: characters by default, the model's tokens with `from_embeddings` or
            `from_huggingface_tokenizer`. The splitter calls it a few times for each chunk.
        add_start_index: Whether documents get the metadata `start_index`, the chunk's offset in its text.
        strip_whitespace: Whether to strip white space around chunks; otherwise chunks without overlap join to the text.
        language: Language of the sentence rules.

    Raises:
        ValueError: A size is outside its range.
        InvalidParameter: The language is unknown.
    """

    def __init__(
        self,
        chunk_size: int = 4000,
        chunk_overlap: int = 0,
        length_function: Callable[[str], int] = len,
        add_start_index: bool = False,
        strip_whitespace: bool = True,
        *,
        language: str = "en",
    ) -> None:
        flags = {"add_start_index": add_start_index, "strip_whitespace": strip_whitespace}
        super().__init__(chunk_size, chunk_overlap, length_function, **flags)
        self._segmenter = Segmenter(language)

    @classmethod
    def from_embeddings(cls, embeddings: EddyEmbeddings, *, chunk_size: int = PASSAGE_SIZE, **settings: Any) -> Self:
        """Measure in tokens of the embeddings' model, and use their language.

        Args:
            embeddings: The embeddings that will embed the chunks.
            chunk_size: Maximum number of tokens in a chunk.
            **settings: The other parameters of the class.
        """
        count = embeddings.embedder.count_tokens
        return cls(chunk_size=chunk_size, length_function=count, **{"language": embeddings.language, **settings})

    def split_text(self, text: str) -> list[str]:
        """Split a text into chunks; a blank one has none.

        Raises:
            InvalidText: The text is not valid Unicode.
        """
        return [text[start:end] for start, end in self._chunks(text)]

    def create_documents(self, texts: list[str], metadatas: list[dict[Any, Any]] | None = None) -> list[Document]:
        """Split texts into documents, with `metadatas` for the chunks of each text.

        Raises:
            InvalidText: A text is not valid Unicode.
        """
        documents = []
        for text, metadata in zip(texts, metadatas or [{}] * len(texts), strict=True):
            for start, end in self._chunks(text):
                # The base class searches for the chunk, and finds the wrong place if sentences repeat.
                place = {"start_index": start} if self._add_start_index else {}
                documents.append(Document(text[start:end], metadata={**copy.deepcopy(metadata), **place}))
        return documents

    def _chunks(self, text: str) -> Iterator[tuple[int, int]]:
        spans = self._spans(text)

        def size(first: int, last: int) -> int:
            return self._length_function(text[spans[first][0] : spans[last][1]])

        first = 0
        while first < len(spans):
            last = _last_fitting(first, len(spans), lambda first, last: size(first, last) <= self._chunk_size)
            yield spans[first][0], spans[last][1]
            start = first
            first = last + 1
            # The overlap must leave room for the next sentence, or the loop would not end.
            while (
                first < len(spans)
                and first - 1 > start
                and size(first - 1, last) <= self._chunk_overlap
                and size(first - 1, last + 1) <= self._chunk_size
            ):
                first -= 1

    def _spans(self, text: str) -> list[tuple[int, int]]:
        sentences = self._segmenter.sentences(text)
        if self._strip_whitespace:
            return [(sentence.start, sentence.end) for sentence in sentences]
        starts = [0, *(sentence.start for sentence in sentences[1:])] if sentences else []
        return list(zip(starts, [*starts[1:], len(text)], strict=False))


def _last_fitting(first: int, count: int, fits: Callable[[int, int], bool]) -> int:
    """Last sentence of the chunk that begins with `first`: a galloping search, since `fits` measures text."""
    good, step = first, 1
    while good + step < count and fits(first, good + step):
        good, step = good + step, step * 2
    while step > 1:
        step //= 2
        if good + step < count and fits(first, good + step):
            good += step
    return good
