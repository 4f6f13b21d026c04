"""MTEB's tasks by name, those that each method's paper reports, and the instructions that HTP puts before texts."""

from __future__ import annotations

import json
import re
from importlib.resources import files

import mteb
from mteb.abstasks import AbsTask

from eddy_embed.errors import InvalidParameter

_STS = ("STS12", "STS13", "STS14", "STS15", "STS16")
_STS_ALL = (*_STS, "STSBenchmark", "SICK-R")
_PREPRINTS = (*("BiorxivClusteringP2P", "BiorxivClusteringS2S"), *("MedrxivClusteringP2P", "MedrxivClusteringS2S"))
_POSTS = (
    *("RedditClustering", "RedditClusteringP2P", "StackExchangeClustering", "StackExchangeClusteringP2P"),
    "TwentyNewsgroupsClustering",
)
_ARXIV = ("ArxivClusteringP2P", "ArxivClusteringS2S")
_LONG = ("LEMBQMSumRetrieval", "LEMBWikimQARetrieval", "LEMBSummScreenFDRetrieval", "LEMBNarrativeQARetrieval")
_BEIR = ("ArguAna", "SciFact", "FiQA2018", "NFCorpus", "SCIDOCS", "TRECCOVID")
_LABELS = (
    *("Banking77Classification", "EmotionClassification", "ImdbClassification", "ToxicConversationsClassification"),
    "TweetSentimentExtractionClassification",
)
_MASSIVE = ("MassiveIntentClassification[en]", "MassiveScenarioClassification[en]")
_RERANKING = ("AskUbuntuDupQuestions", "MindSmallReranking", "StackOverflowDupQuestions")
SUITES: dict[str, tuple[str, ...]] = {
    # Ding et al. 2025, tables 1 to 3.
    "htp": (
        *(*_BEIR, "HotpotQA", *_LONG, *_LABELS, *_MASSIVE, "AmazonCounterfactualClassification[en]"),
        *("MTOPDomainClassification[en]", "MTOPIntentClassification[en]", "AmazonReviewsClassification[en]"),
        *(*_RERANKING, *_ARXIV, *_PREPRINTS, *_POSTS, *_STS),
    ),
    # Tang and Yang, table 1. Its table 2, LoCoV1, is not in MTEB.
    "kv": (
        *(*_STS_ALL, "BIOSSES", *_BEIR, "QuoraRetrieval", "Touche2020", "CQADupstackEnglishRetrieval", *_LABELS),
        *("TwitterURLCorpus", "SprintDuplicateQuestions", "TwitterSemEval2015", *_PREPRINTS, *_POSTS),
        *(*_RERANKING, "SciDocsRR", "SummEval"),
    ),
    # Duan et al. 2025, table 2.
    "reba": (
        *("TNews", "IFlyTek", "MultilingualSentiment", "JDReview", "OnlineShopping", "Waimai", "Ocnli", "Cmnli"),
        *("CLSClusteringS2S", "CLSClusteringP2P", "ThuNewsClusteringS2S", "ThuNewsClusteringP2P", "T2Retrieval"),
        *("MMarcoRetrieval", "DuRetrieval", "CovidRetrieval", "CmedqaRetrieval", "EcomRetrieval", "MedicalRetrieval"),
        *("VideoRetrieval", "ATEC", "BQ", "LCQMC", "PAWSX", "STSB", "AFQMC", "QBQTC", "T2Reranking"),
        *("MMarcoReranking", "CMedQAv1-reranking", "CMedQAv2-reranking"),
    ),
    # Zhou et al. 2025, table 1.
    "tempscale": (
        *(*_LABELS, *_MASSIVE, "AmazonPolarityClassification", *_ARXIV, *_PREPRINTS, *_POSTS, "SummEval"),
        *(*_STS_ALL, "BIOSSES", "STS17[en-en]", "STS22[en]", "NFCorpus", "SciFact", *_RERANKING, "SciDocsRR", *_LONG),
    ),
    # Fu et al. 2024, table 1.
    "tp": _STS_ALL,
}
"""The tasks of each paper's main tables, as `find_task` names them."""
_SPEC = re.compile(r"(?P<name>[^\[\]]+)(\[(?P<subset>[^\[\]]+)\])?")


def find_task(spec: str) -> AbsTask:
    """Find a task of MTEB, limited to its test split if it has one.

    Args:
        spec: "STS12", or "STS17[en-en]" for one subset.

    Raises:
        InvalidParameter: There is no such task.
    """
    match = _SPEC.fullmatch(spec)
    name, subset = (match["name"], match["subset"]) if match else (spec, None)
    try:
        task: AbsTask = mteb.get_task(name, hf_subsets=None if subset is None else [subset])
    except (KeyError, ValueError) as error:
        raise InvalidParameter(f"MTEB has no task {spec!r}: {str(error)[:200]}") from None
    if "test" in task.eval_splits:
        task.filter_eval_splits(["test"])
    return task


def suite(name: str) -> tuple[str, ...]:
    """The tasks that a method's paper reports.

    Raises:
        InvalidParameter: There is no such suite.
    """
    if name not in SUITES:
        raise InvalidParameter(f"there is no suite {name!r}; choose one of {', '.join(SUITES)}")
    return SUITES[name]


def instructions(name: str) -> dict[str, str]:
    """Load a set of instructions, by MTEB's names of the tasks.

    Args:
        name: "htp", tables 10 and 11 of the HTP paper (Ding et al. 2025).

    Raises:
        InvalidParameter: There is no such set.
    """
    sets = json.loads((files("mteb_eddy") / "instructions.json").read_text(encoding="utf-8"))
    if name not in sets:
        raise InvalidParameter(f"there are no instructions {name!r}; choose one of {', '.join(sets)}")
    return dict(sets[name]["tasks"])
