"""The bundled model: the path that makes it, on a text of our own, and the files that are shipped."""

from __future__ import annotations

import json
import lzma
import math
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ROOT / "plugin" / "eddy_embed" / "model" / "tiny"
sys.path.insert(0, str(ROOT / "demos"))

from tiny_lm import data, evaluate, prepare  # noqa: E402

THINGS = ["the river", "a kettle", "an old mill", "the lighthouse", "a narrow bridge", "the glass", "a copper pan"]
DEEDS = ["turns slowly", "cools in the wind", "carries water", "was repaired twice", "stands by the road", "is empty"]
TIMES = ["in spring", "after 1987", "before noon", "every 14 days", "when it rains", "at night"]
RECIPE = data.Recipe(
    phases=((32, 4), (64, 2)), schedule=((-1, 0.0), (1, 1.0), (3, 1.0), (6, 0.0)), tokens=256, weights={"essays": 2}
)
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
HARD = [
    "Ground coffee loses its smell within days; whole beans keep it for weeks.",
    "tabs\tand\r\nline ends,   three spaces \n\n and a NUL \x00 inside",
    "emoji 😀👩‍👩‍👧 flags 🇫🇷, CJK 漢字かな 한국어, Ελληνικά, عربى, e\u0301",
    "  leading and trailing  ",
    "x" * 300,
]


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Import transformers' trainer, which takes seconds, where a test uses it."""
    global train
    from tiny_lm import train


def essay(seed: int, sentences: int) -> str:
    rng = np.random.default_rng(seed)
    words = (f"{rng.choice(THINGS)} {rng.choice(DEEDS)} {rng.choice(TIMES)}." for _ in range(sentences))
    return "\n".join(w[0].upper() + w[1:] for w in words)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The token ids of a corpus of two sources, one of them compressed."""
    corpus, out = tmp_path_factory.mktemp("corpus"), tmp_path_factory.mktemp("tokens")
    (corpus / "essays-00.txt").write_text("\n\n".join(essay(i, 3 + i % 9) for i in range(40)), encoding="utf-8")
    with lzma.open(corpus / "tales-00.txt.xz", "wt", encoding="utf-8") as file:
        file.write("\n\n".join(essay(100 + i, 2 + i % 30) for i in range(30)))
    (corpus / "heldout.txt").write_text(essay(999, 60), encoding="utf-8")
    prepare.prepare(corpus, out, vocab_size=384, sample_mb=1.0)
    return out


def trained(tokens: Path, run: Path, **arguments) -> dict[str, torch.Tensor]:
    train.train(tokens, run, RECIPE, SHAPE, use_cpu=True, disable_tqdm=True, **arguments)
    return load_file(run / "model" / "model.safetensors")


def test_a_resumed_run_ends_with_the_very_same_model(tokens: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    whole = trained(tokens, tmp_path / "run", save_steps=3, logging_steps=1)
    log = json.loads((tmp_path / "run" / "checkpoint-6" / "trainer_state.json").read_text())["log_history"]
    rates = [row["learning_rate"] / 0.003 for row in log]
    assert rates == pytest.approx([0.5, 1, 1, 1, 2 / 3, 1 / 3]), "they follow the schedule"
    kept = tmp_path / "run" / "checkpoint-3"
    assert kept.is_dir()
    shutil.copytree(kept, tmp_path / "again" / kept.name)
    resumed = trained(tokens, tmp_path / "again", save_steps=100)
    assert whole.keys() == resumed.keys() and all(torch.equal(whole[name], resumed[name]) for name in whole)
    fresh = train.new_model(SHAPE, 384, RECIPE.seed).to(torch.bfloat16).state_dict()
    assert not any(torch.equal(whole[name], fresh[name]) for name in whole), "a weight was never trained"

    folder = tmp_path / "run" / "model"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    start = tokenizer("Hm")["input_ids"][0]
    assert model.dtype == torch.bfloat16 and model.config.use_cache and start == prepare.BOS_ID
    loss, count = evaluate.nats(model.float(), tokenizer, essay(7, 30), 64)
    assert 1 < math.exp(loss / count) < 384
    assert count == len(tokenizer(essay(7, 30))["input_ids"]), "the end takes the place of the start"


def test_the_shipped_model_is_small_and_knows_some_english_and_its_tokenizer_loses_nothing() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(SHIPPED)
    for text in HARD:
        encoding = tokenizer(text, return_offsets_mapping=True)
        assert encoding["input_ids"][0] == tokenizer.bos_token_id
        assert tokenizer.decode(encoding["input_ids"], skip_special_tokens=True) == text
        covered = 0
        for start, end in encoding["offset_mapping"][1:]:
            assert start <= covered and end >= covered and end > start
            covered = end
        assert covered == len(text)
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
