"""GGUF files: read exactly, mapped, and refused with a reason where they cannot be."""

from __future__ import annotations

import copy
import os
import shutil
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFEndian
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import gguf_files
from tests.comparison import CORE, TEXTS
from tests.families import VOCABULARY, WINDOW
from tests.gguf_files import FAMILIES, VARIANTS, Recipe, vocabulary, wide, write
from tests.mixed_texts import mixed_texts
from tests.processes import UNPRIVILEGED, run_code
from tests.selection import each_once, mostly_slow, turns

from eddy_embed import Embedder
from eddy_embed.errors import EddyError, ModelNotFound, UnsupportedModel
from eddy_embed.model.loading.gguf import header
from eddy_embed.model.loading.gguf.config import config_of
from eddy_embed.model.loading.gguf.header import GgufFile
from eddy_embed.model.loading.gguf.open import open_gguf
from eddy_embed.model.loading.gguf.tokenizer import tokenizer_of
from eddy_embed.model.loading.names import BUNDLED
from eddy_embed.model.loading.pretrained import read_tokenizer
from eddy_embed.model.packed import PackedEmbedding, PackedLinear
from eddy_embed.text.tokenizer import Tokenizer

LLAMA = FAMILIES["llama"]
KINDS = ("F16", "Q8_0", "Q4_1", "Q4_K")
CELLS = [*each_once(FAMILIES, KINDS), *((name, "F16") for name in VARIANTS), ("gpt-oss", "MXFP4")]
IDS = torch.tensor([[(3 + 7 * place) % 500 for place in range(300)]])
"""More than the original window of a model with two sets of angles."""
TOLERANCE = 1e-5


def recipe_of(name: str, kind: str) -> Recipe:
    recipe = (FAMILIES | VARIANTS)[name]
    return wide(recipe) if kind == "Q4_K" else recipe


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], tuple[Path, Any]]:
    """Writes the file of a recipe in a quantisation once; its path, and the model that it holds."""
    folder = tmp_path_factory.mktemp("gguf")

    @cache
    def make(name: str, kind: str) -> tuple[Path, Any]:
        path = folder / f"{name}-{kind}.gguf"
        return path, write(path, recipe_of(name, kind), kind)

    return make


@pytest.fixture(autouse=True)
def packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny models stay packed as large ones do."""
    monkeypatch.setattr(header, "UNPACKED", 0)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    write(path, LLAMA)
    return path


# --- exact


@pytest.mark.parametrize(("name", "kind"), CELLS)
def test_states_are_those_of_the_model_that_was_written(
    name: str, kind: str, written: Callable[[str, str], tuple[Path, Any]]
) -> None:
    path, held = written(name, kind)
    model, expected = opened(path), copy.deepcopy(held)
    assert type(model) is type(expected)
    tolerance = TOLERANCE
    # torch's products of experts are not there in float64
    if any(each in name for each in ("qwen3moe", "gpt-oss", "experts")):
        tolerance *= 10
    else:  # where rounding does not grow from layer to layer
        model, expected = model.double(), expected.double()
    for size in (80, 300) if name == "phi3, long" else (80,):
        with torch.no_grad():
            ours, right = (each(IDS[:, :size], output_hidden_states=True) for each in (model, expected))
        assert len(ours.hidden_states) == expected.config.num_hidden_layers + 1
        for state, other in zip((*ours.hidden_states, ours.logits), (*right.hidden_states, right.logits), strict=True):
            assert (state - other).abs().max() <= tolerance * max(1.0, other.abs().max())


@pytest.mark.parametrize(
    ("name", "method"),
    [
        *mostly_slow(product(FAMILIES, CORE), turns(["llama", "gemma3", "gpt-oss"], CORE[9:12])),
        ("gemma4", "kv:layers=2-4"),
    ],
)
def test_vectors_are_those_of_the_model_that_was_written(
    name: str, method: str, written: Callable[[str, str], tuple[Path, Any]]
) -> None:
    path, expected = written(name, "Q8_0")
    tokenizer = vocabulary((FAMILIES | VARIANTS)[name].words).tokenizer
    with (
        Embedder(path, method=method, dtype="float32", device="cpu") as ours,
        Embedder(expected, tokenizer=tokenizer, method=method) as right,
    ):
        assert np.abs(ours.encode_document(TEXTS) - right.encode_document(TEXTS)).max() <= TOLERANCE


def tokenizer_of_file(folder: Path, words: str, **metadata: Any) -> Any:
    """The tokenizer of a file that holds nothing else; `metadata` of it, and None for what is left out."""
    own = {f"tokenizer.ggml.{key}": value for key, value in metadata.items()}
    known = gguf_files.tokens_of(words, VOCABULARY) | {"llama.context_length": WINDOW}
    gguf_files.write_parts(folder / "x.gguf", "llama", known, {}, own)
    return tokenizer_of(GgufFile.read(folder / "x.gguf"))


@pytest.mark.parametrize("words", ["smollm", "gpt-2", "qwen2", "llama-bpe", "llama", "gemma", "gemma4"])
def test_ids_are_those_of_the_original_tokenizer(words: str, tmp_path: Path) -> None:
    texts = mixed_texts(200, seed=1)
    ours = Tokenizer(tokenizer_of_file(tmp_path, words))
    right = Tokenizer(vocabulary(words).tokenizer)
    for text, own, other in zip(texts, ours(texts), right(texts), strict=True):
        assert own.ids.tolist() == other.ids.tolist(), text
        assert own.starts.tolist() == other.starts.tolist(), text
    assert (ours.prefix.tolist(), ours.suffix.tolist()) == (right.prefix.tolist(), right.suffix.tolist())


def test_the_tokenizer_is_the_one_that_the_file_describes(tmp_path: Path) -> None:
    """AutoTokenizer would bring Qwen 2's own in its place, with another normaliser and no start token."""
    metadata = {"tokenizer.ggml.add_bos_token": True, "tokenizer.chat_template": "{{ messages }} é"}
    write(tmp_path / "x.gguf", FAMILIES["qwen2"], own_metadata=metadata)
    right = tokenizer_of(GgufFile.read(tmp_path / "x.gguf"))
    with Embedder(tmp_path / "x.gguf", method="plain") as embedder:
        ours = embedder._pipeline.planner.tokenizer
        assert ours.digest == Tokenizer(right).digest
        assert ours.prefix.tolist() == [0]
        assert embedder.max_length == right.model_max_length == WINDOW
    assert read_tokenizer(str(tmp_path / "x.gguf"), {}).chat_template == "{{ messages }} é"


def test_start_end_and_a_space_ahead_are_as_the_file_says(tmp_path: Path) -> None:
    for words, start, end in product(["qwen2", "llama-bpe", "llama"], [True, False, None], [True, False, None]):
        tokenizer = Tokenizer(tokenizer_of_file(tmp_path, words, add_bos_token=start, add_eos_token=end))
        own = vocabulary(words).metadata
        begins = words != "qwen2" if start is None else start
        assert tokenizer.prefix.tolist() == [own["bos_token_id"]] * begins
        assert tokenizer.suffix.tolist() == [own["eos_token_id"]] * bool(end)
    for prefix, expected in ((True, "▁▁▁"), (False, "▁▁")):
        assert tokenizer_of_file(tmp_path, "llama", add_space_prefix=prefix).tokenize("  river")[0] == expected


def test_fingerprints_follow_the_weights_however_they_are_held(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed or not, opened by name or handed over, with the layers above the exit and the head or without."""

    def of(path: Path, dtype: str = "float32") -> str:
        with Embedder(path, method="plain:exit=1", dtype=dtype) as embedder:
            return embedder.fingerprint

    write(tmp_path / "named.gguf", LLAMA, own_metadata={"general.name": "another"})
    other, held = tmp_path / "other.gguf", set[str]()
    write(other, LLAMA, "Q8_0")
    assert of(tiny) == of(tiny, "bfloat16") == of(tmp_path / "named.gguf") != of(other)
    for unpacked in (0, 10**9):
        monkeypatch.setattr(header, "UNPACKED", unpacked)
        model, tokenizer, _ = open_gguf(str(other), device="cpu", dtype="float32", head=True)
        with Embedder(other, method="plain:exit=1", dtype="float32") as named:
            shared = Embedder(model, method="plain:exit=1", tokenizer=tokenizer)
            assert np.array_equal(named.encode_document(TEXTS), shared.encode_document(TEXTS))
            held |= {named.fingerprint, shared.fingerprint}
    assert held == {of(other)}


# --- mapped


def opened(path: Path) -> Any:
    return open_gguf(str(path), device="cpu", dtype="float32", head=True)[0]


def test_small_models_are_unpacked(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = opened(tiny)
    assert GgufFile.read(tiny).memory == tiny.stat().st_size
    values = sum(module.rows * module.width for module in packed.model.modules() if isinstance(module, PackedLinear))
    monkeypatch.setattr(header, "UNPACKED", 4 * values - 1)
    assert any(isinstance(module, PackedLinear) for module in opened(tiny).modules())
    assert "weights='packed'" in repr(Embedder(tiny, method="plain:exit=-1", dtype="float32"))
    monkeypatch.setattr(header, "UNPACKED", 4 * values)
    with monkeypatch.context() as scarce:
        scarce.setattr("eddy_embed.model.loading.gguf.open.free_memory", lambda: 8 * values - 1)
        assert any(isinstance(module, PackedLinear) for module in opened(tiny).modules())
    assert "weights=" not in repr(Embedder(tiny, method="plain:exit=-1", dtype="float32"))
    model = opened(tiny)
    kinds = {type(module) for module in model.modules() if isinstance(module, torch.nn.Linear | PackedEmbedding)}
    layers = sum(module.weight.numel() for module in model.model.modules() if isinstance(module, torch.nn.Linear))
    assert GgufFile.read(tiny).memory == tiny.stat().st_size + 2 * layers
    assert kinds == {torch.nn.Linear, PackedEmbedding} and not any(each.is_meta for each in model.parameters())
    with torch.no_grad():
        torch.testing.assert_close(model(IDS[:, :60]).logits, packed(IDS[:, :60]).logits)


def test_matrices_stay_in_the_file_and_are_shared(tiny: Path) -> None:
    model = opened(tiny)
    kinds = {type(module) for module in model.modules() if hasattr(module, "raw")}
    assert kinds == {PackedLinear, PackedEmbedding}
    held = sum(each.numel() * each.element_size() for each in (*model.parameters(), *model.buffers()))
    assert held < 1.05 * tiny.stat().st_size  # three times as much in float32
    first, second = (Embedder(model, tokenizer=vocabulary("llama").tokenizer, method="plain:exit=2") for _ in range(2))
    view = first._pipeline.open_runner.host._view
    raw = view.get_input_embeddings().raw
    assert raw.data_ptr() == model.get_input_embeddings().raw.data_ptr()
    assert np.array_equal(first.encode_document(TEXTS), second.encode_document(TEXTS))


CHANGES: dict[str, Callable[[Path], Any]] = {
    "touched": lambda path: os.utime(path, (1, 1)),
    "cut short": lambda path: os.truncate(path, 4096),
}
CHANGED = r"tiny\.gguf has changed since it was opened, .*; open it again"


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_while_it_is_open_is_noticed(change: str, tiny: Path) -> None:
    """Between two passes, and within one."""
    model = opened(tiny)
    with Embedder(tiny, method="plain:exit=1", check=False) as embedder:
        model.model.layers[1].mlp.down_proj.register_forward_pre_hook(lambda *_: CHANGES[change](tiny))
        with torch.no_grad(), pytest.raises(ModelNotFound, match=CHANGED):
            model.model(IDS[:, :60])
        with pytest.raises(ModelNotFound, match=CHANGED):
            embedder.encode_document(TEXTS)
        with pytest.raises(ModelNotFound, match=CHANGED):
            _ = embedder.fingerprint


OPENS = """
import sys
from eddy_embed import Embedder
from eddy_embed.errors import ModelNotFound
for path in sys.argv[1:]:
    try:
        Embedder(path, method="plain")
    except ModelNotFound as error:
        print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="root has no such rights to give up elsewhere")
def test_files_that_may_not_be_read_are_named(tiny: Path, tmp_path: Path) -> None:
    of_model, folder = tmp_path / "of model", tmp_path / "folder"
    shutil.copytree(BUNDLED["eddy-tiny"], of_model)
    folder.mkdir()
    for path in (tmp_path / "unnamed", folder / "x.gguf"):
        shutil.copy(tiny, path)
    locked = [tiny, tmp_path / "unnamed", folder, of_model / "model.safetensors"]
    for path in locked:
        path.chmod(0)
    said = run_code(UNPRIVILEGED + OPENS, tiny, locked[1], folder, folder / "x.gguf", of_model).stdout.splitlines()
    folder.chmod(0o755)
    for path, line in zip([*locked[:2], folder / "config.json", folder / "x.gguf", locked[3]], said, strict=True):
        assert line.startswith(f"{path} may not be read by this user; give it the permission, "), line


def test_a_file_that_is_replaced_stays_as_it_was(tiny: Path, tmp_path: Path) -> None:
    with Embedder(tiny, method="plain") as embedder:
        before = embedder.encode_document(TEXTS)
        write(tmp_path / "other.gguf", FAMILIES["qwen2"])
        os.replace(tmp_path / "other.gguf", tiny)
        assert np.array_equal(embedder.encode_document(TEXTS), before)


# --- what is refused


def with_metadata(**metadata: Any) -> Callable[[Path], None]:
    """A file with further metadata; `__` stands for a dot."""
    own = {key.replace("__", "."): value for key, value in metadata.items()}
    return lambda path: write(path, LLAMA, own_metadata=own)


def with_tensors(**tensors: Any) -> Callable[[Path], None]:
    own = {key.replace("__", "."): value for key, value in tensors.items()}
    return lambda path: write(path, LLAMA, own_tensors=own)


def with_number(behind: bytes, further: int, number: int) -> Callable[[Path], None]:
    """A file with another number so many bytes behind the end of certain bytes."""

    def change(path: Path) -> None:
        write(path, LLAMA)
        whole = path.read_bytes()
        at = whole.index(behind) + len(behind) + further
        path.write_bytes(whole[:at] + struct.pack("<I", number) + whole[at + 4 :])

    return change


def with_type(number: int) -> Callable[[Path], None]:
    return with_number(b"blk.0.attn_k.weight", 20, number)


def of_architecture(name: str) -> Callable[[Path], None]:
    return lambda path: gguf_files.write_parts(path, name, {f"{name}.block_count": 2}, {})


def _cut(path: Path) -> None:
    write(path, LLAMA)
    os.truncate(path, path.stat().st_size - 5000)


ZEROS = np.zeros((64, 64), np.float32)
HUB = "Hugging Face id or folder"
BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "no GGUF file: it begins with b''"),
    "not fetched": (
        lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 12\n"),
        "is a pointer of Git LFS, not the file itself; run `git lfs pull`",
    ),
    "cut in the weights": (_cut, r"is cut off: [\d,]+ bytes of [\d,]+ are there; fetch"),
    "version 1": (with_number(b"GGUF", 0, 1), "version 1, and those read are 2 and 3; convert the model again"),
    "big-endian": (
        lambda path: write(path, LLAMA, endianess=GGUFEndian.BIG),
        "big-endian processors; convert it with `gguf_convert_endian.py FILE little`",
    ),
    "bert": (of_architecture("bert"), r"an embedding model \(bert\).* name its Hugging Face id"),
    "pooled": (with_metadata(llama__pooling_type=3), r"an embedding model \(llama\)"),
    "both directions": (with_metadata(llama__attention__causal=False), "an embedding model"),
    "projector": (with_metadata(general__type="mmproj"), "a model of images or sound"),
    "vision inside": (with_tensors(v__patch_embd__weight=ZEROS), r"images or sound too \(v\.patch"),
    "another decoder": (of_architecture("mamba"), rf"'mamba' is not among .*llama.*{HUB}"),
    "a mask of its own": (of_architecture("llama4"), r"'llama4' cannot be run exactly \(.*by a mask.*\); name another"),
    "layers with embeddings of their own": (
        lambda path: write(path, VARIANTS["gemma4"], own_metadata={"gemma4.embedding_length_per_layer_input": 8}),
        "as in Gemma 4 E2B and E4B, cannot be cut at an exit",
    ),
    "adapter": (with_metadata(general__type="adapter"), "holds 'adapter', not a model"),
    "first of three": (
        with_metadata(split__count=3, split__no=0),
        "one of 3 parts by its metadata; name them NAME-00001",
    ),
    "a type that its rows do not fit": (
        with_type(GGMLQuantizationType.Q4_K),
        r"attn_k\.weight of shape \(32, 64\) in blocks of 256",
    ),
    "wrong offset": (with_number(b"blk.0.attn_k.weight", 24, 3), r"blocks of 1 at 3\); fetch it again"),
    "unknown setting": (
        with_metadata(llama__attention__scale=0.5),
        rf"llama\.attention\.scale=0\.5 is a setting that Eddy does not know; name .*{HUB}",
    ),
    "setting of a wrong type": (with_metadata(llama__block_count="six"), "block_count='six' has a type"),
    "setting for each layer": (
        with_metadata(llama__attention__head_count=[4] * 6),
        r"llama\.attention\.head_count differs between layers",
    ),
    "setting left out": (with_metadata(llama__attention__head_count_kv=None), r"lacks llama\.attention\.head_count_kv"),
    "experts": (with_metadata(llama__expert_count=8), "a mixture of 8 experts"),
    "rope scaling": (with_metadata(llama__rope__scaling__type="su"), "rope.scaling.type='su'"),
    "part of a head turns": (with_metadata(llama__rope__dimension_count=8), "8 of 16 dimensions"),
    "values of another width": (
        with_metadata(llama__attention__key_length=16, llama__attention__value_length=8),
        "keys and values of different widths",
    ),
    "layers that are not there": (with_metadata(llama__block_count=7), "7 layers, and 6 are there"),
    "type without a reader": (with_type(GGMLQuantizationType.Q8_K), "quantised as Q8_K, which cannot"),
    "type of tomorrow": (with_type(99), "blk.0.attn_k.weight is quantised as type 99, which cannot"),
    "a tensor too many": (
        with_tensors(blk__0__attn_extra__weight=ZEROS),
        r"holds blk\.0\.attn_extra\.weight, which LlamaForCausalLM has no place for; name",
    ),
    "no embeddings": (with_tensors(token_embd__weight=None), r"lacks the tensor token_embd\.weight"),
    "another pre-tokenizer": (
        lambda path: write(path, replace(LLAMA, words="gpt-2"), own_metadata={"tokenizer.ggml.pre": "viking"}),
        rf"tokenizer 'gpt2' with pre-tokenizer 'viking' is not among .* {HUB}",
    ),
    "no tokens": (with_metadata(tokenizer__ggml__tokens=None), "its tokenizer cannot be read .*; fetch it again"),
    "no start token": (with_metadata(tokenizer__ggml__bos_token_id=None), "asks for a bos_token with every text"),
}
DAMAGED = (
    *("empty", "not fetched", "cut in the weights", "version 1", "big-endian", "first of three"),
    *("a type that its rows do not fit", "wrong offset"),
)
"""Those that are no readable files; the others hold what Eddy cannot run."""


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_with_a_reason(name: str, tmp_path: Path) -> None:
    make, reason = BAD[name]
    path = tmp_path / "bad.gguf"
    make(path)
    with pytest.raises(ModelNotFound if name in DAMAGED else UnsupportedModel, match=reason) as caught:
        Embedder(path, method="plain", dtype="float32")
    assert str(path) in str(caught.value)


def test_a_file_in_parts_opens_by_any_of_them(tiny: Path) -> None:
    write(tiny, LLAMA, count=3)
    first, second, last = (tiny.with_name(f"tiny-0000{number}-of-00003.gguf") for number in (1, 2, 3))
    with Embedder(tiny, method="plain") as whole, Embedder(last, method="plain") as joined:
        assert np.array_equal(whole.encode_document(TEXTS), joined.encode_document(TEXTS))
        assert whole.fingerprint == joined.fingerprint
    second.unlink()
    for part in (first, last):
        with pytest.raises(ModelNotFound, match=rf"one of 3 parts, and {second.name} is not beside it; fetch"):
            Embedder(part, method="plain")


def test_version_2_is_read(tmp_path: Path) -> None:
    with_number(b"GGUF", 0, 2)(tmp_path / "x.gguf")
    assert GgufFile.read(tmp_path / "x.gguf").quantisation == "F16"


@cache
def small_file() -> bytes:
    """A file of which the header is most."""
    small = {"num_hidden_layers": 1, "hidden_size": 8, "intermediate_size": 8, "vocab_size": 600}
    small |= {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4}
    with TemporaryDirectory() as folder:
        write(Path(folder, "x"), replace(LLAMA, shape=LLAMA.shape | small))
        return Path(folder, "x").read_bytes()


def read_whole_header(path: Path) -> None:
    """All that is done with a header ahead of the weights."""
    file = GgufFile.read(path)
    file.check()
    config_of(file)
    tokenizer_of(file)


@settings(max_examples=30)
@given(data=st.data())
def test_a_header_cut_anywhere_is_refused_and_one_with_other_bytes_is_read_or_refused(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, whole = tmp_path_factory.getbasetemp() / "damaged.gguf", bytearray(small_file())
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(ModelNotFound):
        read_whole_header(path)
    near = st.integers(0, 1400) | st.integers(0, whole.index(b"blk.0.ffn_down.weight") + 800)
    for _ in range(2):
        changed = whole.copy()
        for place, byte in data.draw(st.lists(st.tuples(near, st.integers(0, 255)), min_size=1, max_size=3)):
            changed[place] = byte
        path.write_bytes(changed)
        with suppress(EddyError):
            read_whole_header(path)


# --- a real model


IDS_OF_LLAMA_CPP = {
    "The capital of France is": [504, 3575, 282, 4649, 314],
    "Hello  world\n\t 12345 <|im_end|> don't": [
        *(19556, 216, 905, 3354, 216, 33, 34, 35, 36, 37, 2067, 108, 306, 79, 486, 108, 46, 1326, 982)
    ],
    "naïve café, e\u0301 日本語 🙂 مرحبا": [
        *(3546, 46494, 37366, 28, 297, 151, 219, 17097, 241, 115, 40993, 179, 120, 248, 47526, 36395, 20602, 44626),
        *(31462, 10805),
    ],
    " \n\n  \tx\r\n": [38028, 256, 197, 104, 2738],
}


def test_smollm2_has_the_ids_of_llama_cpp(smollm2: Path) -> None:
    tokenizer = Tokenizer(tokenizer_of(GgufFile.read(smollm2)))
    for text, tokens in zip(IDS_OF_LLAMA_CPP, tokenizer(list(IDS_OF_LLAMA_CPP)), strict=True):
        assert tokens.ids.tolist() == IDS_OF_LLAMA_CPP[text], text
    assert tokenizer.prefix.tolist() == tokenizer.suffix.tolist() == []
