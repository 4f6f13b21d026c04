"""What a pass costs, in what can be counted: products, states written, and calls of torch; never in seconds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tests.families import PROSE
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config

from eddy_embed import Embedder
from eddy_embed.model import products
from eddy_embed.model.loading.names import BUNDLED


@pytest.fixture(scope="module", autouse=True)
def alike() -> Iterator[None]:
    """The same on every processor: products by the operator that torch's counter knows, and of the tokens alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "slower_in_mkl", lambda: False)
        patch.setattr(products, "pad_rows", lambda rows, _: rows)
        patch.setattr("eddy_embed.model.host.pad_rows", products.pad_rows)
        yield


@pytest.fixture(scope="module")
def model() -> tuple[Any, Any]:
    """A model large enough for products to be most of the work, and the bundled tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED["eddy-tiny"], model_max_length=4096)
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 4096}
    config = Qwen3Config(vocab_size=len(tokenizer), initializer_range=0.01, **sizes)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval(), tokenizer


@dataclass(frozen=True)
class Cost:
    """Of each token of a pass; the calls of the whole pass."""

    products: float
    written: float
    calls: int


class Counter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls, self.written = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.calls += 1
        made = out if isinstance(out, tuple | list) else (out,)
        if not func.is_view:
            self.written += sum(each.numel() for each in made if isinstance(each, torch.Tensor))
        return out


def text_of(embedder: Embedder) -> str:
    """A text whose sequence has about 512 tokens, whatever the method adds."""
    words = PROSE.read_text(encoding="utf-8").split()
    texts = [" ".join(words[:count]) for count in range(1, len(words) + 1)]
    return texts[bisect_left(texts, 512, key=lambda text: embedder.count_tokens(text, role="document"))]


def cost(model: tuple[Any, Any], method: str, texts: list[str] | None = None) -> Cost:
    """Counted on the second call: the first one prepares what all further ones share."""
    embedder = Embedder(model[0], tokenizer=model[1], method=method, max_length=4096)
    texts = texts or [text_of(embedder)]
    embedder.encode_document(texts)
    tokens = sum(embedder.explain(text).sequence_tokens for text in texts)
    with FlopCounterMode(display=False) as multiplied:
        embedder.encode_document(texts)
    with Counter() as counter:
        embedder.encode_document(texts)
    return Cost(multiplied.get_total_flops() / tokens, counter.written / tokens, counter.calls)


@pytest.fixture(scope="module")
def plain(model: tuple[Any, Any]) -> Cost:
    return cost(model, "plain:exit=-1")


@pytest.mark.parametrize(
    ("method", "written", "calls"),
    [
        ("tp:exit=-1", 1.02, 1.06),
        ("htp:exit=-1", 1.02, 1.06),
        ("kv:layers=2-3", 1.03, 1.3),  # entries of every second layer, merged row by row
        ("plain:exit=-1+tempscale:tau=0.7", 1.01, 1.01),
        ("echo:exit=-1", 1.0, 1.0),
        ("reba:exit=-1", 1.03, 1.55),
    ],
)
def test_a_method_adds_little_to_a_pass_of_as_many_tokens(
    method: str, written: float, calls: float, model: tuple[Any, Any], plain: Cost
) -> None:
    """One more copy of the states in every layer would be 0.028 of what this model writes."""
    found = cost(model, method)
    assert found.products == pytest.approx(plain.products, rel=1e-3)
    assert found.written / plain.written <= written
    assert found.calls / plain.calls <= calls


def test_half_the_layers_cost_half(model: tuple[Any, Any], plain: Cost) -> None:
    half = cost(model, "plain:exit=2")
    assert half.products / plain.products == 0.5
    assert half.written / plain.written <= 0.51 and half.calls / plain.calls <= 0.57


def test_no_product_is_spent_on_padding(model: tuple[Any, Any]) -> None:
    """Sequences of a pass lie behind each other; a layer's calls do not grow with them, but for attention's."""
    model_, texts = model[0], [" ".join(["word"] * size) for size in (3, 90, 1, 240, 17, 5, 64)]
    weights = sum(each.numel() for name, each in model_.base_model.named_parameters() if "proj" in name)
    together = cost(model, "plain:exit=-1", texts)
    assert together.products == 2 * weights
    alone = sum(cost(model, "plain:exit=-1", [text]).calls for text in texts)
    assert together.calls < 0.5 * alone
