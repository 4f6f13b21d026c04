"""The encoder in MTEB: its vectors are the embedder's, its results are kept apart, and known answers come out."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import pytest
from typer.testing import CliRunner

import mteb_eddy
from eddy_embed import Embedder
from eddy_embed.errors import InvalidParameter
from mteb_eddy import command

if TYPE_CHECKING:
    import mteb
    from tests.adapters.mteb_tasks import TEXTS, stand_in

    from mteb_eddy import EddyEncoder, suite, tasks

SHORT = {"max_length": 128, "overflow": "truncate"}
INSTRUCTIONS = {"SciFact": "Given a claim, retrieve what supports it", "Banking77Classification": "Find the intent"}


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Import MTEB, which takes seconds, where a test uses it."""
    global PAIRS, TEXTS, EddyEncoder, instructions, mteb, stand_in, suite, tasks
    import mteb
    from tests.adapters.mteb_tasks import PAIRS, TEXTS, stand_in

    from mteb_eddy import EddyEncoder, instructions, suite, tasks


@pytest.fixture(scope="module")
def encoder(imported: None) -> EddyEncoder:
    return EddyEncoder("eddy-tiny", method="kv", instructions=INSTRUCTIONS)


def encoded(encoder: EddyEncoder, task: str, texts: list[str], kind: str | None, **kwargs) -> np.ndarray:
    batches = [{"text": texts[:2]}, {"text": texts[2:]}]
    of, kind = mteb.get_task(task).metadata, kind and mteb.types.PromptType(kind)
    return encoder.encode(batches, task_metadata=of, hf_split="test", hf_subset="default", prompt_type=kind, **kwargs)


@pytest.mark.parametrize(
    ("task", "kind", "told", "role"),
    [
        ("SciFact", "query", {"query_instruction": INSTRUCTIONS["SciFact"]}, "query"),
        ("SciFact", "document", {}, "document"),
        ("NFCorpus", "query", {}, "query"),
        ("Banking77Classification", None, {"text_instruction": INSTRUCTIONS["Banking77Classification"]}, "document"),
        ("STS12", None, {}, "document"),
    ],
)
def test_vectors_are_those_of_an_embedder_with_the_instruction(encoder, task, kind, told, role) -> None:
    """kv words queries and documents otherwise, so that neither passes for the other."""
    found = encoded(encoder, task, TEXTS[:4], kind, batch_size=2, show_progress_bar=False)
    with Embedder("eddy-tiny", method="kv", **told) as embedder:
        wanted = (embedder.encode_query if role == "query" else embedder.encode_document)(TEXTS[:4])
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_blank_texts_are_zeros_and_told(encoder, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        found = encoded(encoder, "NFCorpus", [TEXTS[0], " \n", TEXTS[1]], "document")
    assert not found[1].any() and np.allclose(np.linalg.norm(found[[0, 2]], axis=1), 1)
    assert "NFCorpus: 1 of 3 texts are blank" in caplog.text
    similar = np.asarray(encoder.similarity(found[:1], found))
    assert similar[0] == pytest.approx([1, 0, found[0] @ found[2]], abs=1e-6)


def test_what_would_change_vectors_is_refused(encoder) -> None:
    with pytest.raises(InvalidParameter, match="precision: not known in encode_kwargs"):
        encoded(encoder, "STS12", TEXTS[:3], None, precision="int8")
    with pytest.raises(InvalidParameter, match="an embedder has its own"):
        EddyEncoder(encoder.embedder, method="plain:exit=2")


def test_the_card_says_what_ran(encoder) -> None:
    from mteb.models.abs_encoder import AbsEncoder
    from mteb.models.models_protocols import EncoderProtocol

    from mteb_eddy.encoder import public_name

    assert isinstance(encoder, AbsEncoder) and isinstance(encoder, EncoderProtocol)
    meta = encoder.mteb_model_meta
    assert (meta.name, meta.framework, meta.languages) == ("eddy-embed/eddy-tiny", ["PyTorch", "Transformers"], None)
    assert public_name("ollama:user/tiny:1b") == "ollama/user_tiny_1b"
    assert meta.training_datasets == set() and meta.use_instructions
    assert meta.experiment_kwargs["method"] == "kv"
    assert meta.experiment_kwargs["fingerprint"] not in ("", encoder.embedder.fingerprint)


def test_results_are_kept_by_what_made_them(tmp_path) -> None:
    made = [
        EddyEncoder("eddy-tiny", method="plain:exit=2", **SHORT),
        EddyEncoder("eddy-tiny", method="plain:pool=last", **SHORT),
        EddyEncoder("eddy-tiny", method="plain:exit=2", instructions={"SciFact": "Find it"}, **SHORT),
        EddyEncoder("eddy-tiny", method="plain:exit=2", max_length=64, overflow="truncate"),
    ]
    cache = mteb.ResultCache(tmp_path)
    assert len({cache.get_task_result_path("SciFact", each.mteb_model_meta) for each in made}) == len(made)


def test_every_task_of_a_paper_is_there() -> None:
    for name in ("htp", "kv", "reba", "tempscale", "tp"):
        for spec in suite(name):
            task = tasks.find_task(spec)
            assert task.metadata.name == spec.partition("[")[0] and task.eval_splits
        assert len(set(suite(name))) == len(suite(name))


def invoke(*arguments: object):
    return CliRunner().invoke(command.app, ["run", *(str(each) for each in arguments)])


def test_the_command_prints_scores_and_goes_on_where_it_stopped(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tasks, "find_task", stand_in)
    monkeypatch.setattr(mteb_eddy, "suite", lambda name: ("SciFact", "STS12"))
    asked = ("eddy-tiny", "SciFact", "--suite", "tp", "-m", "plain:exit=1", "-m", "plain:exit=0", "-o", tmp_path)
    asked += ("--max-length", 64, "--instructions", "htp")
    first = invoke(*asked)
    assert first.exit_code == 0, first.output
    lines = [line.rpartition(": ")[0] for line in first.stdout.splitlines()]
    assert lines == [f"plain:exit={exit}: {task}" for exit in (1, 0) for task in ("SciFact", "STS12")]
    stored = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("SciFact.json")}
    assert len(stored) == 2
    assert invoke(*asked).stdout == first.stdout
    assert {path: path.stat().st_mtime_ns for path in stored} == stored, "what was stored was run again"
    assert invoke(*asked, "--fresh").stdout == first.stdout
    assert all(path.stat().st_mtime_ns > before for path, before in stored.items())


def test_refusals_name_what_to_do(tmp_path) -> None:
    for arguments, said in (
        (("NoSuchTask",), "MTEB has no task 'NoSuchTask'"),
        (("--suite", "nobody"), "there are no suites of 'nobody'; choose one of htp, kv"),
        (("STS12", "--instructions", "kv"), "there are no instructions of 'kv'; choose one of htp"),
        ((), "name at least one task"),
    ):
        result = invoke("eddy-tiny", *arguments, "--output", tmp_path)
        assert result.exit_code != 0 and said in str(result.exception)
