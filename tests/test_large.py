"""Large texts: work that grows with them and not with their square; ten megabytes on one line."""

from __future__ import annotations

import resource
import subprocess
import sys

import numpy as np
import pytest
from tests.comparison import embedder

from eddy_embed.encoding.document import positions_by_span
from eddy_embed.encoding.planner import Window
from eddy_embed.text.sentences import Segmenter
from eddy_embed.text.sequence import Sequence


def job(starts: np.ndarray, ends: np.ndarray) -> Window:
    none = np.zeros(len(starts), np.int64)
    sequence = Sequence(ids=none, roles=none, starts=starts, ends=ends, copies=none, edges=np.empty((0, 2), np.int64))
    return Window(sequence, np.arange(len(starts)))


def test_a_window_looks_at_its_own_sentences_only() -> None:
    # 100,000 sentences in 2,000 windows: looking at all of them in every window would take an hour.
    edges = np.arange(100_001, dtype=np.int64) * 10
    spans = np.stack([edges[:-1], edges[1:] - 1], axis=1)
    for window in range(2_000):
        starts = edges[window * 50 : window * 50 + 50]
        found, positions = positions_by_span(job(starts, starts + 9), spans)
        assert (found[0], found[-1], len(found)) == (window * 50, window * 50 + 49, 50)
        assert [int(at[0]) for at in positions] == list(range(50))


def test_sentences_of_a_window_are_those_of_a_search_through_all() -> None:
    generator = np.random.default_rng(0)
    for _ in range(300):
        edges = np.unique(generator.integers(0, 60, 12))
        spans = np.stack([edges[:-1], np.maximum(edges[:-1] + 1, edges[1:] - generator.integers(0, 3))], axis=1)
        starts = np.sort(generator.integers(0, 70, 8))
        ends = starts + generator.integers(0, 9, 8)
        found, positions = positions_by_span(job(starts, ends), spans)
        expected: dict[int, list[int]] = {}
        for token, (start, end) in enumerate(zip(starts, np.maximum(ends, starts + 1), strict=True)):
            overlapped = [at for at, (a, b) in enumerate(spans) if start < b and a < end]
            if overlapped:
                expected.setdefault(overlapped[0], []).append(token)
        for at, (a, b) in enumerate(spans):
            over = [t for t, s in enumerate(starts) if s < b and a < max(ends[t], s + 1)]
            if at not in expected and over and over[-1] == np.searchsorted(starts, b) - 1:
                expected[at] = [over[-1]]
        assert {int(at): list(map(int, run)) for at, run in zip(found, positions, strict=True)} == expected


@pytest.mark.parametrize("text", ["\n".join(["buoy"] * 5_000), "and so " * 5_000], ids=["lines", "one sentence"])
def test_thousands_of_lines_and_one_endless_sentence(text: str) -> None:
    sentences = Segmenter().sentences(text)
    e = embedder("llama", "plain:exit=1")
    document = e.encode_long(text)
    assert [(s.start, s.end) for s in document.sentences] == [(s.start, s.end) for s in sentences]
    assert document.n_windows > 10 and document.n_truncated == 0 and np.isfinite(document.vector).all()
    assert sum(passage.n_tokens for passage in document.passages) <= document.n_tokens == e.count_tokens(text)


SEGMENT = """
import resource, sys
from eddy_embed.text.sentences import Segmenter
unit = sys.argv[1].encode().decode("unicode_escape")
text = (unit * (10_000_000 // len(unit) + 1))[:10_000_000]
last = 0
for sentence in Segmenter().sentences(text):
    assert not text[last : sentence.start].strip() and 0 < sentence.end - sentence.start <= 1000
    last = sentence.end
assert not text[last:].strip()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["The ferry left at noon. ", "and so the keeper went on ", "x", "buoy\\n", ". "])
def test_ten_megabytes_are_segmented_in_bounded_memory(unit: str) -> None:
    child = subprocess.run([sys.executable, "-c", SEGMENT, unit], capture_output=True, text=True, timeout=600)
    assert child.returncode == 0, child.stderr
    kilobytes = int(child.stdout) // (1024 if sys.platform == "darwin" else 1)
    # spaCy and the text take 300 MB; the rest is sentences, of which there are millions where each has few characters.
    assert kilobytes < (
        1_000_000 if unit in ("The ferry left at noon. ", "and so the keeper went on ", "x") else 2_500_000
    )


@pytest.mark.slow
def test_ten_megabytes_on_one_line_are_embedded() -> None:
    from eddy_embed import Embedder

    sentence = "The ferry left the old harbour at noon, and nobody asked the keeper why the lamp was out again. "
    text = (sentence * (10_000_000 // len(sentence) + 1))[:10_000_000]
    e = Embedder("eddy-tiny", method="plain:exit=1")
    document = e.encode_long(text, parts=("document", "passages"))
    assert document.n_windows > 1000 and document.n_truncated == 0
    assert document.passages[0].start == 0 and document.passages[-1].end == len(text.rstrip())
    assert np.isfinite(document.vector).all()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 8_000_000
