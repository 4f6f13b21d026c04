"""Measure search where questions share hardly a word with the passage that answers them.

    python benchmarks/paraphrases.py CORPUS --model smollm2 --method plain:exit=0+sif+filter --method prompteol

`CORPUS` is the folder of paragraphs that `demos/tiny_lm` describes, `<source>-NN.txt.xz`. `paraphrases.jsonl` holds our
questions; for each the range of characters in a file that answers it, and a digest of that passage. The library has
those passages and others of the same files. At most a third of a question's terms, as an index reads them, may stand in
its passage; a question above that is refused. Defaults were chosen on the questions of the split "dev", none on "test".

Each model writes the library into an index in a temporary folder once for each method, by default the one recommended
for it, and answers every question: MRR@10 by words, by meaning and by both. `--write FOLDER` writes the set as the task
`paraphrases` of `FOLDER`, which `evaluate.py` and the other benchmarks read. Do not judge `eddy-tiny` by this set: it
has read the corpus.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import numpy as np
from evaluation.metrics import reciprocal_rank
from evaluation.results import Cost, System, TaskResult
from output import say
from search import BOTH, MEANING, WORDS, Collection, answered

from chroma_eddy import Document, Hit
from chroma_eddy.words.terms import TermAnalyzer

FILE = Path(__file__).with_name("paraphrases.jsonl")
NAME = "paraphrases"
MOST = 1 / 3
"""Share of a question's terms that its passage may have."""
OTHERS = {
    "factbook-00.txt.xz": 60,
    "gov-00.txt.xz": 250,
    "gutenberg-00.txt.xz": 75,
    "gutenberg-01.txt.xz": 75,
    "medquad-00.txt.xz": 120,
    "openstax-00.txt.xz": 270,
    "openstax-01.txt.xz": 30,
    "software-00.txt.xz": 260,
    "speeches-00.txt.xz": 60,
    "stats-00.txt.xz": 60,
}
"""Passages of each file that answer no question, spread evenly over it."""
PARAGRAPH = re.compile(r"^(?:Question: |Answer: )?([^\n]{200,})$", re.MULTILINE)
LENGTHS = (250, 400, 560, 700)
"""Most characters of such passages, in turn; they end with a sentence where one ends after `SHORTEST`."""
SHORTEST = 120


@dataclass(frozen=True)
class Question:
    """A question, and the range of characters of a corpus file that answers it."""

    question: str
    split: str
    domain: str
    file: str
    start: int
    end: int
    digest: str

    @property
    def id(self) -> str:
        """The passage's."""
        return _id(self.file, self.start)

    def passage(self, text: str) -> str:
        """The passage in its file's text.

        Raises:
            SystemExit: Another passage stands there.
        """
        found = text[self.start : self.end]
        if hashlib.sha256(found.encode()).hexdigest()[:16] != self.digest:
            raise SystemExit(
                f"{self.file}, characters {self.start} to {self.end}, do not hold the passage that answers "
                f"{self.question!r}, but {found!r:.80}; give the corpus that the questions were written on"
            )
        return found


def main(given: list[str] | None = None) -> None:
    """Build the set, check it, and measure what is asked for."""
    command = argparse.ArgumentParser(description="Measure search by questions that paraphrase the answer.")
    command.add_argument("corpus", type=Path, help="folder of <source>-NN.txt.xz")
    command.add_argument("--write", type=Path, help="write the set into this folder of tasks")
    command.add_argument("--model", action="append", default=[], help="measure with this model; may be repeated")
    command.add_argument("--method", action="append", help="and this method; may be repeated; default: recommended")
    options = command.parse_args(given)
    questions = [Question(**json.loads(line)) for line in FILE.read_text(encoding="utf-8").splitlines()]
    passages = library(options.corpus, questions)
    shares = check(questions, passages)
    say(f"{len(questions)} questions over {len(passages)} passages, digest {digest(passages)}")
    say(f"{'; '.join(counted(shares))} of the terms stand in the passage")
    if options.write:
        write(options.write / "retrieval" / NAME, questions, passages)
    for model in options.model:
        say(measured(collection(questions, passages), model, options.method or [None]))


# --- The set


def library(corpus: Path, questions: Sequence[Question]) -> dict[str, str]:
    """Passages by id: those that answer the questions, and others of the same files, each text once.

    Raises:
        SystemExit: A file is missing, or is not the one that the questions were written on.
    """
    found: dict[str, str] = {}
    for name, others in OTHERS.items():
        try:
            with lzma.open(corpus / name, "rt", encoding="utf-8", newline="\n") as file:
                text = file.read()
        except FileNotFoundError:
            raise SystemExit(f"no {name} in {corpus}: give the folder of the corpus of demos/tiny_lm") from None
        own = [each for each in questions if each.file == name]
        answers = {each.id: each.passage(text) for each in own}
        taken = [(each.start, each.end) for each in own]
        found |= answers
        found |= {_id(name, start): text[start:end] for start, end in spread(text, others, taken)}
    first = {text: id_ for id_, text in reversed(found.items())}
    return {id_: text for id_, text in found.items() if first[text] == id_}


def spread(text: str, count: int, taken: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Ranges of passages from about so many paragraphs, evenly spread, except those that hold a taken range."""
    paragraphs = [found.span(1) for found in PARAGRAPH.finditer(text)]
    picked = paragraphs[:: max(len(paragraphs) // count, 1)][:count]
    for (start, end), most in zip(picked, cycle(LENGTHS), strict=False):
        if not any(start < last and first < end for first, last in taken):
            shown = text[start : min(end, start + most)]
            sentences = max(shown.rfind(". "), shown.rfind("? ")) + 1
            yield start, start + (sentences if start + most < end and sentences > SHORTEST else len(shown))


def share(analyzer: TermAnalyzer, question: str, passage: str) -> float:
    """Share of a question's terms that stand in a passage."""
    terms = set(analyzer.of_question(question))
    return len(terms & set(analyzer.texts(passage))) / len(terms)


def check(questions: Sequence[Question], passages: dict[str, str]) -> list[float]:
    """The shares of all questions.

    Raises:
        SystemExit: One shares too much with its passage, or is asked twice.
    """
    analyzer = TermAnalyzer("en")
    shares = [share(analyzer, each.question, passages[each.id]) for each in questions]
    for each, value in zip(questions, shares, strict=True):
        if value > MOST:
            raise SystemExit(
                f"{value:.0%} of the terms of {each.question!r} stand in the passage that answers it, at most "
                f"{MOST:.0%} may: {passages[each.id]!r}; put it in other words"
            )
    asked, times = Counter(each.question for each in questions).most_common(1)[0]
    if times > 1:
        raise SystemExit(f"{asked!r} is asked {times} times; drop all but one")
    return shares


def counted(shares: Sequence[float]) -> list[str]:
    """How many questions have which shares."""
    edges = (0, 0.001, 0.15, 0.25, 1.0)
    names = ("0", "up to 15 %", "up to 25 %", "up to a third")
    return [f"{number}: {name}" for number, name in zip(np.histogram(shares, edges)[0].tolist(), names, strict=True)]


def digest(passages: dict[str, str]) -> str:
    """Of the whole library: equal ones were built from the same corpus by the same rule."""
    return hashlib.sha256(json.dumps(passages).encode()).hexdigest()[:16]


def write(folder: Path, questions: Sequence[Question], passages: dict[str, str]) -> None:
    """The set as a retrieval task, as `evaluate.py` reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    documents = [{"id": id_, "title": "", "text": text} for id_, text in passages.items()]
    queries = [{"id": f"q{at}", "text": each.question} for at, each in enumerate(questions)]
    for name, rows in (("corpus", documents), ("queries", queries)):
        lines = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    grades = "".join(f"q{at}\t{each.id}\t1\n" for at, each in enumerate(questions))
    (folder / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{grades}", encoding="utf-8")
    say(f"written: {folder}")


def _id(file: str, start: int) -> str:
    return f"{file.split('.')[0]}:{start}"


# --- The measurement


def collection(questions: Sequence[Question], passages: dict[str, str]) -> Collection:
    """The set; sets of questions by split, then by domain."""
    sets = {"all": list(range(len(questions)))}
    for of in ("split", "domain"):
        names = [getattr(each, of) for each in questions]
        for name in sorted(set(names)):
            sets[name] = [at for at, own in enumerate(names) if own == name]

    def judge(at: int, hits: list[Hit]) -> float:
        return float(reciprocal_rank(np.array([float(hit.document == questions[at].id) for hit in hits[:10]])))

    given = [Document(id_, text) for id_, text in passages.items()]
    return Collection(given, [each.question for each in questions], judge, sets, "MRR@10")


def measured(of: Collection, model: str, methods: Sequence[str | None]) -> str:
    """Tables of a model: every method over all questions, and by split and domain."""
    runs = [answered(of, model, method) for method in methods]
    names = [about["method"] for about, _ in runs]

    def result(at: int, ranking: str, name: str) -> TaskResult:
        values = np.array(runs[at][1][ranking])[of.sets[name]]
        return TaskResult(System(names[at]), name, {"score": values}, Cost(), {})

    return "\n\n".join((_overall(names, result), _by_set(names, of.sets, result)))


Result = Callable[[int, str, str], TaskResult]


def _overall(names: Sequence[str], result: Result) -> str:
    lines = ["| method | words | meaning | both | both − first method's |", "|---|---:|---:|---:|---:|"]
    for at, name in enumerate(names):
        cells = [_shown(*result(at, ranking, "all").interval()) for ranking in (WORDS, MEANING, BOTH)]
        cells.append(_shown(*result(at, BOTH, "all").difference(result(0, BOTH, "all")), "+") if at else "–")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _by_set(names: Sequence[str], sets: dict[str, list[int]], result: Result) -> str:
    heads = [f"{name} ({len(positions)})" for name, positions in sets.items()]
    lines = [f"| method, ranked by | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    for at, name in enumerate(names):
        for ranking in (MEANING, BOTH):
            cells = [f"{result(at, ranking, each).score():.3f}" for each in sets]
            lines.append(f"| {name}, {ranking} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _shown(value: float, low: float, high: float, sign: str = "") -> str:
    return f"{value:{sign}.3f} ({low:{sign}.3f} to {high:{sign}.3f})"


if __name__ == "__main__":
    main()
