"""The tokenizer of a GGUF file: llama.cpp's ids, and the special tokens that the file states."""

from __future__ import annotations

from typing import Any

from tokenizers import Regex, Tokenizer, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast
from transformers.integrations.gguf.gguf_tokenizer_mapping import (
    GGUF_PRE_TOKENIZER_SPLITS,
    convert_gguf_tokenizer,
    get_gguf_tokenizer,
)

from eddy_embed.errors import UnsupportedModel
from eddy_embed.model.loading.gguf.header import GgufFile

_WHOLE_WORDS = frozenset(
    {
        *(
            "llama3",
            "llama-v3",
            "llama-bpe",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
            "tekken",
        )
    }
)
"""Pre-tokenizers whose vocabularies hold whole words that no merges lead to, and that begin every text with a token."""
_GPT2 = frozenset({"gpt-2", "default", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4", "phi-2"})
"""Pre-tokenizers that split as GPT-2's."""
_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"})
"""The same, each digit for itself."""


def tokenizer_of(file: GgufFile) -> PreTrainedTokenizerFast:
    """The tokenizer of a file, with its start and end tokens and chat template.

    Raises:
        UnsupportedModel: It is of a kind whose ids would not be llama.cpp's.
    """
    _, described, settings = get_gguf_tokenizer(str(file.path))
    kind, split = described.get("tokenizer_type"), described.get("pre_tokenizer_type") or "default"
    known = kind == "llama" or (
        kind == "gpt2" and (split in GGUF_PRE_TOKENIZER_SPLITS or split in _GPT2 or split in _DIGITS)
    )
    if not known:
        raise UnsupportedModel(
            f"{file.path}: tokenizer {kind!r} with pre-tokenizer {split!r} is not among those that Eddy reads from "
            "GGUF; name the same model's Hugging Face id or folder"
        )
    backend, _ = convert_gguf_tokenizer(file.architecture, described)
    if kind == "gpt2":
        backend.model.ignore_merges = split in _WHOLE_WORDS
        if split in _DIGITS:
            digit = pre_tokenizers.Split(Regex(r"\p{N}"), behavior="isolated")
            backend.pre_tokenizer = pre_tokenizers.Sequence([digit, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    start = settings.get("add_bos_token", split in _WHOLE_WORDS)
    _bracket(file, backend, settings, start=bool(start), end=bool(settings.get("add_eos_token", False)))
    named = {name: settings[name] for name in ("bos_token", "eos_token", "unk_token", "pad_token") if settings[name]}
    make: Any = PreTrainedTokenizerFast  # which has no types
    return make(  # type: ignore[no-any-return]
        tokenizer_object=backend,
        chat_template=settings.get("chat_template"),
        clean_up_tokenization_spaces=False,
        model_max_length=int(file.get("context_length")),
        **named,
    )


def _bracket(file: GgufFile, backend: Tokenizer, settings: dict[str, Any], *, start: bool, end: bool) -> None:
    """Put the start and end tokens around every text that the file asks for."""
    template, special = ["$A"], {}
    for wanted, name, place in ((start, "bos_token", 0), (end, "eos_token", 2)):
        token = str(settings.get(name) or "")
        number = backend.token_to_id(token)
        if wanted and number is None:
            raise UnsupportedModel(f"{file.path} asks for a {name} with every text, and {token!r} is none")
        if wanted:
            template.insert(place, token)
            special[token] = number
    backend.post_processor = processors.TemplateProcessing(single=template, special_tokens=list(special.items()))
