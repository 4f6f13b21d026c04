"""LoCoV1, twelve sets of long documents (Saad-Falcon et al. 2024), as a task for MTEB, which lacks it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from datasets import Dataset, load_dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata

from eddy_embed.errors import InvalidParameter

SUBSETS = (
    *("2wikimqa", "courtlistener_HTML", "courtlistener_Plain_Text", "gov_report", "legal_case_reports", "multifieldqa"),
    *("passage_retrieval", "qasper_abstract", "qasper_title", "qmsum", "stackoverflow", "summ_screen_fd"),
)
DOCUMENTS, QUERIES = "hazyresearch/LoCoV1-Documents", "hazyresearch/LoCoV1-Queries"
_FORMATS = {".jsonl": "json", ".parquet": "parquet"}


class LoCoV1(AbsTaskRetrieval):
    """Retrieval of long documents of twelve kinds by questions, summaries or excerpts; nDCG@10.

    Each subset has its own corpus, as in the paper.
    """

    metadata = TaskMetadata(
        name="LoCoV1",
        description="Twelve sets of long documents, found by questions, summaries or excerpts.",
        reference="https://arxiv.org/abs/2402.07440",
        dataset={"path": DOCUMENTS, "revision": "main"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs={subset: ["eng-Latn"] for subset in SUBSETS},
        main_score="ndcg_at_10",
        date=("2024-02-01", "2024-02-29"),
        domains=None,
        task_subtypes=[],
        license=None,
        annotations_creators="derived",
        dialect=[],
        sample_creation="found",
        bibtex_citation="",
    )

    def __init__(self, folder: str | os.PathLike[str] | None = None, **kwargs: Any) -> None:
        """Set the source of the data.

        Args:
            folder: Folder with `documents.jsonl` (`dataset`, `pid`, `passage`) and `queries.jsonl` (`dataset`, `qid`,
                `query`, `answer_pids`), or with `.parquet` files of the same names. None: the Hugging Face hub.
            **kwargs: Arguments of MTEB.
        """
        super().__init__(**kwargs)
        self._folder = None if folder is None else Path(folder)

    def load_data(self, num_proc: int | None = None, **_: Any) -> None:
        """Load documents and queries by subset.

        Raises:
            InvalidParameter: The folder lacks a file, or a subset has no queries.
        """
        if self.data_loaded:
            return
        documents, queries = self._rows("documents", DOCUMENTS), self._rows("queries", QUERIES)
        self.dataset = {}
        for subset in self.hf_subsets:
            own = [row for row in queries if row["dataset"] == subset]
            if not own:
                raise InvalidParameter(f"LoCoV1: there are no queries of {subset!r} in {self._folder or QUERIES}")
            corpus = [{"id": d["pid"], "title": "", "text": d["passage"]} for d in documents if d["dataset"] == subset]
            self.dataset[subset] = {
                "test": {
                    "corpus": Dataset.from_list(corpus),
                    "queries": Dataset.from_list([{"id": row["qid"], "text": row["query"]} for row in own]),
                    "relevant_docs": {row["qid"]: dict.fromkeys(row["answer_pids"], 1) for row in own},
                    "top_ranked": None,
                }
            }
        self.data_loaded = True

    def _rows(self, kind: str, hub: str) -> Any:
        if self._folder is None:
            return load_dataset(hub, split="test")
        files = [path for ending in _FORMATS if (path := self._folder / f"{kind}{ending}").exists()]
        if not files:
            raise InvalidParameter(f"LoCoV1: {self._folder} has no {kind}.jsonl and no {kind}.parquet")
        return load_dataset(_FORMATS[files[0].suffix], data_files=str(files[0]), split="train")
