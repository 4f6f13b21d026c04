"""The bundled model: the path that makes it, on a text of our own, and the files that are shipped."""

from __future__ import annotations

import itertools
import json
import lzma
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ROOT / "plugin" / "eddy_embed" / "model" / "tiny"
sys.path.insert(0, str(ROOT / "demos"))

from tiny_lm import checkpoint, data, evaluate, export, model, optim, prepare, train  # noqa: E402

THINGS = ["the river", "a kettle", "an old mill", "the lighthouse", "a narrow bridge", "the glass", "a copper pan"]
DEEDS = ["turns slowly", "cools in the wind", "carries water", "was repaired twice", "stands by the road", "is empty"]
TIMES = ["in spring", "after 1987", "before noon", "every 14 days", "when it rains", "at night"]

SETTINGS = {
    "phases": ((32, 4), (64, 2)),
    "schedule": ((-1, 0.0), (1, 1.0), (3, 1.0), (6, 0.0)),
    "tokens": 256,
    "micro": 128,
    "chunk": 64,
    "weights": {"essays": 2},
    "shape": model.NetworkShape(vocab=384, hidden=32, layers=2, heads=2, ffn=48, window=64),
}
HARD = [
    "Ground coffee loses its smell within days; whole beans keep it for weeks.",
    "tabs\tand\r\nline ends,   three spaces \n\n and a NUL \x00 inside",
    "emoji 😀👩‍👩‍👧 flags 🇫🇷, CJK 漢字かな 한국어, Ελληνικά, عربى, e\u0301",
    "  leading and trailing  ",
    "x" * 300,
]


def essay(seed: int, sentences: int) -> str:
    rng = np.random.default_rng(seed)
    words = (f"{rng.choice(THINGS)} {rng.choice(DEEDS)} {rng.choice(TIMES)}." for _ in range(sentences))
    return "\n".join(w[0].upper() + w[1:] for w in words)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of two sources, one of them compressed, and its shards."""
    corpus = tmp_path_factory.mktemp("corpus")
    (corpus / "essays-00.txt").write_text("\n\n".join(essay(i, 3 + i % 9) for i in range(40)), encoding="utf-8")
    with lzma.open(corpus / "tales-00.txt.xz", "wt", encoding="utf-8") as file:
        file.write("\n\n".join(essay(100 + i, 2 + i % 30) for i in range(30)))
    (corpus / "heldout.txt").write_text(essay(999, 60), encoding="utf-8")
    out = tmp_path_factory.mktemp("shards")
    prepare.prepare(corpus, out, vocab_size=384, sample_mb=1.0, shard_mib=0.01)
    return out


def trained(shards: Path, steps: int, workers: int = 1) -> train.Trainer:
    trainer = train.Trainer(train.TrainingSettings(**SETTINGS), shards, workers=workers)
    for _ in range(steps):
        trainer.advance()
    return trainer


def same(a: train.Trainer, b: train.Trainer) -> bool:
    pairs = [(a.optimiser.weights, b.optimiser.weights), (a.optimiser.state, b.optimiser.state)]
    return all(torch.equal(x[name], y[name]) for x, y in pairs for name in x)


@pytest.fixture(autouse=True)
def threads():
    """Trainers set the number of threads of the process."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_shards_hold_the_documents_and_their_borders(shards: Path) -> None:
    corpus = data.Corpus(shards)
    tokenizer = prepare.Tokenizer.from_file(str(shards / "tokenizer.json"))
    assert len(corpus.tokens) > 2, "the small limit splits the shards"
    assert all(path.stat().st_size <= 0.01 * 2**20 for path in shards.glob("*.bin"))
    documents = [
        tokenizer.decode(tokens[start : end - 1].tolist())
        for source, tokens, starts in zip(corpus.sources, corpus.tokens, corpus.starts, strict=True)
        for start, end in itertools.pairwise(starts)
        if source == "essays" and tokens[end - 1] == prepare.EOS_ID
    ]
    assert documents == [essay(i, 3 + i % 9) for i in range(40)]


@pytest.mark.parametrize("length", [32, 64])
def test_a_pass_holds_every_segment_as_often_as_its_weight(shards: Path, length: int) -> None:
    plan = data.TrainingOrder(data.Corpus(shards), length, {"essays": 2}, seed=1)
    segments = plan.corpus.segments(length)
    used = np.bincount([s for row in plan.rows for s in row], minlength=len(plan.segments))
    assert (used == 1).all() and len(plan.segments) == 2 * len(segments["essays"]) + len(segments["tales"])
    for rows in plan.batch(0, len(plan.rows)):
        known = rows.targets[:, :-1] != data.IGNORED
        assert (rows.targets[:, :-1] == rows.ids[:, 1:])[known].all()
        starts = (rows.positions == 0) & (rows.targets != data.IGNORED)
        assert (rows.ids[starts] == prepare.BOS_ID).all() and starts.sum() >= len(rows.ids)
        crossing = rows.segments[:, 1:] != rows.segments[:, :-1]
        assert rows.whole != crossing.any()
        assert (rows.targets[:, :-1][crossing] == data.IGNORED).all()


def test_packed_segments_do_not_see_one_another(shards: Path) -> None:
    trainer = trained(shards, 1)
    weights = trainer.optimiser.weights
    packed = next(rows for rows in trainer.order(64).batch(0, 200) if not rows.whole)
    ids, _, positions, numbers = (torch.from_numpy(a[:1]) for a in vars(packed).values())
    together = trainer.network.hidden(weights, ids, positions, numbers)
    for number in range(int(numbers.max()) + 1):
        mine = numbers[0] == number
        alone = trainer.network.hidden(weights, ids[:, mine], positions[:, mine], None)
        torch.testing.assert_close(together[:, mine], alone, atol=2e-5, rtol=0)


def test_chunked_loss_equals_the_plain_one() -> None:
    hidden, embedding = torch.randn(70, 16, requires_grad=True), torch.randn(50, 16, requires_grad=True)
    targets = torch.randint(0, 50, (70,))
    targets[::7] = data.IGNORED
    plain = torch.nn.functional.cross_entropy(hidden @ embedding.T, targets, ignore_index=data.IGNORED)
    expected = torch.autograd.grad(plain, (hidden, embedding))
    loss = model.next_token_loss(hidden, embedding, targets, 1 / 60, 32)
    for got, want in zip((loss, *torch.autograd.grad(loss, (hidden, embedding))), (plain, *expected), strict=True):
        torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-5)


def test_schedule_warms_up_and_ends_at_zero() -> None:
    factors = [optim.rate_factor(step, ((-1, 0), (1, 1), (6, 1), (10, 0))) for step in range(11)]
    assert factors == [0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0]


def test_resuming_gives_the_very_same_parameters(shards: Path, tmp_path: Path) -> None:
    whole = trained(shards, 6)
    trained(shards, 3).save(tmp_path, part_mib=0.1)
    path = checkpoint.latest(tmp_path)
    assert max(p.stat().st_size for p in path.glob("part-*")) <= 0.1 * 2**20
    resumed = train.Trainer(train.TrainingSettings(**SETTINGS), shards, workers=2)
    resumed.resume(path)
    resumed.run(tmp_path, 6)
    assert resumed.step == 6 and resumed.seen == whole.seen
    assert same(whole, resumed)
    assert not same(whole, trained(shards, 5))


def test_another_tokenizer_is_refused(shards: Path, tmp_path: Path) -> None:
    trainer = trained(shards, 0)
    trainer.corpus.meta["tokenizer_sha256"] = "other"
    with pytest.raises(ValueError, match="another tokenizer"):
        trained(shards, 0).resume(trainer.save(tmp_path))
    with pytest.raises(ValueError, match="another tokenizer"):
        export.export(tmp_path, shards, tmp_path / "model")


def test_export_loads_in_transformers_and_computes_the_same(shards: Path, tmp_path: Path) -> None:
    from transformers import AutoModel, AutoModelForCausalLM

    trainer = trained(shards, 6)
    trainer.save(tmp_path / "run")
    export.export(tmp_path / "run", shards, tmp_path / "model")
    llama = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32).eval()
    weights = {n: w.to(torch.bfloat16).float() for n, w in trainer.optimiser.weights.items()}
    ids = torch.randint(3, 384, (2, 20))
    with torch.no_grad():
        ours = trainer.network.hidden(weights, ids, torch.arange(20)[None], None)
        torch.testing.assert_close(llama.model(ids).last_hidden_state, ours, atol=1e-5, rtol=0)
    assert AutoModel.from_pretrained(tmp_path / "model").config.hidden_size == 32
    scored = evaluate.PerplexityModel(tmp_path / "model")
    sources, places = evaluate.evaluate(scored, [("essays", essay(7, 30)), ("tales", essay(8, 2))], 64)
    assert 1 < sources["total"].perplexity < 384 and 0 < sources["essays"].bits_per_byte < 8
    assert sources["total"].tokens == sources["essays"].tokens + sources["tales"].tokens
    assert places["0-64"].tokens % 63 == 0


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(SHIPPED)


@pytest.mark.parametrize("text", HARD)
def test_shipped_tokenizer_round_trips_and_covers_the_text(tokenizer, text: str) -> None:
    encoding = tokenizer(text, return_offsets_mapping=True)
    assert encoding["input_ids"][0] == tokenizer.bos_token_id
    assert tokenizer.decode(encoding["input_ids"], skip_special_tokens=True) == text
    covered = 0
    for start, end in encoding["offset_mapping"][1:]:
        assert start <= covered and end >= covered and end > start
        covered = end
    assert covered == len(text)


def test_shipped_tokenizer_is_the_file_itself(tokenizer) -> None:
    raw = prepare.Tokenizer.from_file(str(SHIPPED / "tokenizer.json"))
    assert tokenizer.is_fast and tokenizer.model_max_length == 2048 and tokenizer.eos_token == "</s>"
    for text in HARD:
        assert tokenizer(text)["input_ids"] == raw.encode(text).ids


def test_shipped_model_is_small_and_knows_some_english(tokenizer) -> None:
    from transformers import AutoModelForCausalLM, LlamaForCausalLM

    assert sum(p.stat().st_size for p in SHIPPED.iterdir()) < 40_000_000
    llama = AutoModelForCausalLM.from_pretrained(SHIPPED, dtype=torch.float32).eval()
    assert isinstance(llama, LlamaForCausalLM)
    assert llama.config.max_position_embeddings == 2048 and llama.config.vocab_size == len(tokenizer)
    assert json.loads((SHIPPED / "config.json").read_text())["dtype"] == "bfloat16"
    paragraph = (
        "When water is heated, it begins to move. The warm part rises to the top of the pot, and the cold part sinks "
        "to the bottom, where it is heated in turn. This movement is called convection. It also happens in the air "
        "of a room and in the sea, and it is one of the reasons why the weather changes from day to day."
    )
    ids = tokenizer(paragraph, return_tensors="pt")["input_ids"]
    shuffled = ids.clone()
    shuffled[0, 1:] = ids[0, 1:][torch.randperm(ids.shape[1] - 1)]
    with torch.no_grad():
        loss, noise = (float(llama(input_ids=x, labels=x).loss) for x in (ids, shuffled))
    assert math.exp(loss) < 60, "8192 would be uniform"
    assert noise > loss + 1, "word order matters to it"
