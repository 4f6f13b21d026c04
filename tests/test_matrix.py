"""The table of families and methods, which docs/models.md tells in three rows, says what the code does.

A cell has one of two values. It passes: the vectors equal those of the reference, in float64 to 1e-9 and in float32 to
1e-5. Or it is refused, with the reason that the embedder gives. Anything else is an error. What else cannot be run
exactly is refused too; the fingerprint tells all that decides a vector.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tests import families
from tests.comparison import METHODS, TEXTS, embedder, expected, gap, loaded
from tests.selection import mostly_slow
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from eddy_embed import Embedder, methods
from eddy_embed.errors import EddyError, InvalidParameter, UnsupportedModel
from eddy_embed.model.loading.names import BUNDLED

ROOT = Path(__file__).resolve().parents[1]
TEXT = TEXTS[3]
"""Two sentences, some quotes, more tokens than the sliding windows of the tiny models."""
COLUMNS = {
    "plain": "plain",
    "prompteol, cot, knowledge": "prompteol",
    "metaeol": 'metaeol:prompts="A: {text} is\\n{text} means:",exit=-2',
    "echo": "echo",
    "tp": "tp:prompt=prompteol,range=2-5,exit=-1",
    "htp": "htp:range=1-4,exit=-1",
    "kv, reroute": 'kv:layers="1,3,5-6",bias=-0.5,n=3,verb="Extract key concept",pool=mean',
    "reba": "reba:k=3,pool=mean,exit=4",
    "tempscale": "plain+tempscale",
    "layeravg, standardise": "plain:exit=-1+sif:a=0.01+layeravg:layers=1-2+standardise",
}
"""Registered methods -> the one of `tests.comparison.METHODS` that stands for them."""
PUT_INTO_ATTENTION = {"kv, reroute": "re-routed entries", "reba": "a watch"}
FOR_EARLY_TOKENS = {
    **dict.fromkeys(("prompteol, cot, knowledge", "metaeol", "echo"), "a prompt"),
    "tp": "a prompt and placeholders",
    "htp": "placeholders",
    "kv, reroute": "a prompt and re-routed entries",
    "reba": "a repeated text and a watch",
}
"""What families refuse a method for."""
ROWS = [*families.FAMILIES, *families.MORE_FAMILIES, *families.OWN_ATTENTION, *families.ENCODERS]
USUAL = ("gemma3", "gpt_oss", "gpt_neo", "falcon", "bert", "t5")
"""One of each kind of attention; `test_methods` and `test_encoders` have further families."""
TRIED = ("htp", "kv, reroute", "layeravg, standardise")
"""Columns whose cells are compared by default: between them they touch every moment of a pass."""
EVERY = tuple(COLUMNS)


@dataclass(frozen=True)
class Cell:
    """A family under a method: it passes, or there is a reason why not."""

    reason: str = ""


@cache
def made(family: str, column: str) -> Embedder:
    """The embedder of a cell, fitted where its method learns."""
    return embedder(family, COLUMNS[column])


def opens(family: str, column: str) -> Cell:
    """What the code says when the embedder is made."""
    try:
        made(family, column)
    except UnsupportedModel as error:
        return Cell(re.sub(r"^\w+:? ", "", str(error)))  # without the name of the class
    return Cell()


def compared(family: str, column: str) -> Cell:
    """What the code says, and that it keeps its word.

    Raises:
        ValueError: It does not.
    """
    cell, method = opens(family, column), COLUMNS[column]
    if cell.reason:
        return cell
    exactly = gap(embedder(family, method, exactly=True), family, method, [TEXT])
    single = np.abs(made(family, column).encode_query(TEXT) - expected(family, method, TEXT)).max()
    if not (exactly <= 1e-9 and single <= 1e-5):
        raise ValueError(f"{family}, {column}: {exactly:.1e} and {single:.1e} from the reference")
    return cell


def promised(family: str, column: str) -> Cell:
    """What docs/models.md says of a family and a method."""
    if family in families.OWN_ATTENTION and column in PUT_INTO_ATTENTION:
        return Cell(
            f"computes its attention itself, past transformers' registry, so {PUT_INTO_ATTENTION[column]} cannot be "
            "put into it; use a method that leaves attention as it is, such as plain, prompteol or htp"
        )
    if family in families.ENCODERS and column in FOR_EARLY_TOKENS:
        return Cell(
            f"reads in both directions, which leaves no reason for {FOR_EARLY_TOKENS[column]}; use plain, alone or "
            "with tempscale, last2avg, readout or post-processing"
        )
    return Cell()


@pytest.mark.parametrize(
    ("family", "tried"), mostly_slow([*product(USUAL, [TRIED]), *product(ROWS, [EVERY])], [*product(USUAL, [TRIED])])
)
def test_the_table_says_what_the_code_does(family: str, tried: tuple[str, ...]) -> None:
    for column in COLUMNS:
        look = compared if column in tried else opens
        assert look(family, column) == promised(family, column), (family, column)


def test_the_page_names_the_families() -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8").split("| families | methods |")[1].split("\n\n")[0]
    named = [set(re.findall(r"\w+", row)) & set(ROWS) for row in page.splitlines()[2:]]
    assert named == [{*families.FAMILIES, *families.MORE_FAMILIES}, {*families.OWN_ATTENTION}, {*families.ENCODERS}]


def test_every_registered_method_has_a_column() -> None:
    assert set(COLUMNS.values()) <= METHODS.keys()
    # Readouts, weights and the start token are shared, what is fitted touches no model but `standardise`, which sees
    # layers, and what is recommended is one of the others.
    shared = {"recommended", "best", "fast", "start", "sif", "filter", "readout", "last2avg"}
    running = {name for name in methods.names() if methods.parse(name).post is None} - shared
    assert running | {"standardise"} == {name for column in COLUMNS for name in column.split(", ")}


# --- what cannot be run exactly is refused with the reason

SMALL: dict[str, Any] = {
    "vocab_size": families.VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 96,
}
SHAPE = SMALL | {"num_hidden_layers": 4, "num_key_value_heads": 2, "sliding_window": 16}
EXPERTS = {"moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "num_experts": 4}
CAUSAL = AutoModelForCausalLM.from_config
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "lfm2": (
        lambda: CAUSAL(
            transformers.Lfm2Config(**SMALL, num_key_value_heads=2, layer_types=["conv", "full_attention", "conv"])
        ),
        "1 of 3 layers run their attention",
    ),
    "opt with a projection": (
        lambda: CAUSAL(transformers.OPTConfig(**SMALL, ffn_dim=96, word_embed_proj_dim=32, do_layer_norm_before=False)),
        r"hidden states have shape \(\d+, 32\), not width 64",
    ),
    "llama 4": (
        lambda: CAUSAL(
            transformers.Llama4TextConfig(
                **SMALL, num_key_value_heads=2, head_dim=16, intermediate_size_mlp=96, num_local_experts=2
            )
        ),
        r"gives no hidden states.*such as model\.model",
    ),
    **{
        f"windows that only a mask holds, {config.model_type}": (lambda config=config: CAUSAL(config), "16 tokens")
        for config in (
            transformers.PhimoeConfig(**SHAPE, num_local_experts=4),
            transformers.Qwen2MoeConfig(
                **SHAPE, **EXPERTS, use_sliding_window=True, layer_types=["sliding_attention"] * 4
            ),
        )
    },
    "no weights": (lambda: copy.deepcopy(loaded("llama")[0]).to("meta"), "fails on a trial text"),
    "no language model": (lambda: torch.nn.Linear(2, 2), "does not describe a causal language model"),
}


def test_architectures_that_cannot_be_run_exactly_are_refused() -> None:
    for name, (build, reason) in REFUSED.items():
        with pytest.raises(UnsupportedModel, match=reason):
            Embedder(build().eval(), tokenizer=families.byte_level_tokenizer(), method="plain")
            pytest.fail(name)
    # The same class without a window in any layer is read exactly.
    full = CAUSAL(transformers.Qwen2MoeConfig(**SHAPE, **EXPERTS))
    assert Embedder(full.eval(), tokenizer=families.byte_level_tokenizer(), method="plain")


def test_a_model_that_copies_its_weights_is_refused() -> None:
    model, tokenizer = loaded("llama")
    model = copy.deepcopy(model)

    class Clone(torch.nn.Linear):
        def __deepcopy__(self, memo: dict[int, Any]) -> torch.nn.Linear:
            new = torch.nn.Linear(self.in_features, self.out_features, bias=False)
            new.load_state_dict(self.state_dict())
            return new

    model.model.layers[0].mlp.up_proj.__class__ = Clone
    with pytest.raises(UnsupportedModel, match="copies its weights"):
        Embedder(model, tokenizer=tokenizer, method="plain")


@pytest.mark.parametrize(("layer", "dtype"), [(0, torch.float32), (0, torch.bfloat16), (4, torch.float32)])
def test_layers_that_mix_neighbours_are_refused(layer: int, dtype: torch.dtype) -> None:
    model, tokenizer = loaded("llama")
    model = copy.deepcopy(model).to(dtype)

    class Smooth(torch.nn.Module):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return hidden + hidden.mean(1, keepdim=True)

    model.model.layers[layer].mlp = Smooth()
    with pytest.raises(UnsupportedModel, match="differ from the model's own"):
        Embedder(model, tokenizer=tokenizer, method="plain")


@pytest.mark.parametrize("part", ["embed_tokens", "norm"])
def test_weights_of_two_dtypes_that_do_not_go_together_are_refused(part: str) -> None:
    model, tokenizer = loaded("llama")
    mixed = copy.deepcopy(model).to(torch.bfloat16)
    for name, module in mixed.named_modules():
        if part in name:
            module.to(torch.float32)
    for method in ("plain", "htp", "kv:layers=1-2"):
        with pytest.raises(UnsupportedModel, match="bfloat16 and float32 at once: load it in one"):
            Embedder(mixed, tokenizer=tokenizer, method=method)


def test_a_tokenizer_that_is_missing_slow_or_of_another_model_is_refused() -> None:
    model, _ = loaded("llama")
    e = Embedder(model, tokenizer=AutoTokenizer.from_pretrained(BUNDLED["eddy-tiny"]), method="plain")
    with pytest.raises(UnsupportedModel, match="has 640 token embeddings, and the tokenizer gives"):
        e.encode_document("zebra xylophone")
    with pytest.raises(InvalidParameter, match="tokenizer="):
        Embedder(model, method="plain")

    class Slow:
        is_fast = False

    with pytest.raises(UnsupportedModel, match=r"Slow gives no character offsets.*use_fast=True"):
        Embedder(model, tokenizer=Slow(), method="plain")


# --- the fingerprint


def prints(**changes: Any) -> str:
    options = {"family": "llama", "method": "htp", **changes}
    return embedder(options.pop("family"), options.pop("method"), **options).fingerprint


def test_whatever_decides_a_vector_and_nothing_else_is_in_the_fingerprint() -> None:
    # What is said and what is the default, and what decides no vector.
    first = prints()
    assert first == prints(method="htp:range=1-2,exit=-2,k=1,seed=0") == prints(method="htp:exit=5")
    assert first == prints(batch_size=3, batch_tokens=77, show_progress=False, device="cpu", max_length=families.WINDOW)
    assert len(first) == 32 and int(first, 16) >= 0
    changes: list[dict[str, Any]] = [
        *({"method": "htp:exit=-3"}, {"method": "tp"}, {"family": "qwen3"}, {"normalize": False}),
        *({"query_instruction": "Find it"}, {"text_instruction": "Find it"}),
        *({"max_length": 100}, {"overflow": "truncate"}, {"language": "de"}),
    ]
    assert len({first, *(prints(**each) for each in changes)}) == 1 + len(changes)


def test_the_weights_and_the_configuration_that_run_are_in_the_fingerprint() -> None:
    def of(model: Any, method: str = "plain") -> str:
        return Embedder(model, tokenizer=loaded("llama")[1], method=method).fingerprint

    def configured(family: str, **changes: Any) -> Any:
        model, _ = loaded(family)
        other = type(model)(type(model.config)(**{**model.config.to_dict(), **changes}))
        other.load_state_dict(model.state_dict())
        return other.eval()

    model = copy.deepcopy(loaded("llama")[0])
    before = of(model)
    assert before == prints(method="plain") == of(configured("llama"))
    others = [of(configured("llama", rms_norm_eps=0.5)), of(configured("llama", hidden_act="relu"))]
    with torch.no_grad():
        model.model.layers[4].mlp.up_proj.weight.mul_(1.5)
    assert len({before, of(model), *others}) == 4
    assert of(model, "plain:exit=4") == prints(method="plain:exit=4"), "layer 5 does not run"
    first, last = (configured("smollm3", no_rope_layers=[1, 0, 1, 0, 1, turned]) for turned in (0, 1))
    assert of(first) != of(last)
    assert of(first, "plain:exit=4") == of(last, "plain:exit=4"), "layer 6 does not run"


def test_the_tokenizer_is_in_the_fingerprint() -> None:
    model, tokenizer = loaded("qwen3")
    other = copy.deepcopy(tokenizer)
    other.add_tokens(["river"])
    padded = PreTrainedTokenizerFast(tokenizer_object=copy.deepcopy(tokenizer.backend_tokenizer))
    padded.backend_tokenizer.enable_truncation(4)
    padded.backend_tokenizer.enable_padding(length=9)
    before = Embedder(model, tokenizer=tokenizer, method="plain")
    assert Embedder(model, tokenizer=other, method="plain").fingerprint != before.fingerprint
    same = Embedder(model, tokenizer=padded, method="plain")
    assert same.fingerprint == before.fingerprint
    text = "Padding and truncation set on the tokenizer change nothing."
    assert np.array_equal(same.encode_document(text), before.encode_document(text))


def test_the_settings_are_plain_values_and_survive_closing() -> None:
    import json

    e = embedder("llama", "htp")
    settings, fingerprint = json.loads(json.dumps(e.settings)), e.fingerprint
    assert settings["method"]["rewire"]["span"] == [1, 2] and settings["method"]["readout"]["exit"] == 5
    assert not {"dtype", "device", "batch_size", "batch_tokens"} & set(settings)
    e.close()
    assert e.fingerprint == fingerprint
    with pytest.raises(EddyError, match="closed"):
        e.encode_document("a")
