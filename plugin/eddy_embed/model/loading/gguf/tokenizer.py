"""The tokenizer of a GGUF file: llama.cpp's ids, and the special tokens that the file states."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from eddy_embed.errors import EddyError, UnsupportedModel
from eddy_embed.model.loading.gguf.header import HUB, GgufFile

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_REST}"
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_QWEN35 = _QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]+", r"[^\s\p{L}\p{M}\p{N}]+")
# llama.cpp takes letters beyond ASCII for both large and small.
_LARGE, _SMALL = r"(?:(?=\p{L})[^a-z])", r"(?:(?=\p{L})[^A-Z])"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_TEKKEN = rf"{_BEFORE}{_LARGE}*{_SMALL}+|{_BEFORE}{_LARGE}+{_SMALL}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_REST}"
_GPT4O = (
    rf"{_BEFORE}{_LARGE}*{_SMALL}+{_CONTRACTIONS}?|{_BEFORE}{_LARGE}+{_SMALL}*{_CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_REST}"
)
SPLITS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("default",): (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    ("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4"): (_GPT2,),
    ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"): (r"\p{N}", _GPT2),
    ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"): (_LLAMA3,),
    ("dbrx", "smaug-bpe"): (_LLAMA3,),
    ("tekken",): (_TEKKEN,),
    ("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez"): (_QWEN2,),
    ("qwen35",): (_QWEN35,),
    ("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"): (_GPT4O,),
}
"""How llama.cpp splits text ahead of byte-level BPE, one expression after the other, by the names of pre-tokenizers."""
_BY_NAME = {name: splits for names, splits in SPLITS.items() for name in names}
_WHOLE_WORDS = frozenset(next(names for names in SPLITS if "llama3" in names)) | {"tekken"}
"""Pre-tokenizers whose vocabularies hold whole words that no merges lead to, and that begin every text with a token."""
_KEY = "tokenizer.ggml."
_SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
"""Names of special tokens, and GGUF's."""
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
_ENDS = frozenset(
    {
        *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>"),
        *("<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<eos>"),
        *("<end_of_utterance>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~["),
    }
)
"""What llama.cpp takes for control tokens, whatever the file says."""


def tokenizer_of(file: GgufFile) -> PreTrainedTokenizerFast:
    """Return the tokenizer of a file, with its start and end tokens and chat template.

    Raises:
        UnsupportedModel: It is of a kind whose ids would not be llama.cpp's, or damaged.
    """
    try:
        return _read(file)
    except EddyError:
        raise
    except Exception as error:  # tokenizers raises no narrower class
        said = f"{type(error).__name__}: {error}"
        raise UnsupportedModel(f"{file.path}: its tokenizer cannot be read ({said:.200}); fetch it again") from error


def _read(file: GgufFile) -> PreTrainedTokenizerFast:
    said = {key.removeprefix(_KEY): value for key, value in file.metadata.items() if key.startswith(_KEY)}
    kind, split = said.get("model"), said.get("pre", "default")
    arrays = file.arrays(*(f"{_KEY}{name}" for name in ("tokens", "token_type", "scores", "merges")))
    listed = {key.removeprefix(_KEY): values for key, values in arrays.items()}
    tokens: list[str] = listed["tokens"]
    special = {name: said.get(f"{number}_token_id") for name, number in _SPECIAL.items()}
    named = {f"{name}_token": tokens[number] for name, number in special.items() if number is not None}
    if kind == "llama" and "scores" in listed:
        prefixed = bool(said.get("add_space_prefix", True))
        backend = _sentencepiece(tokens, listed["scores"], named.get("unk_token"), prefixed)
    elif kind == "gpt2" and "merges" in listed and split in _BY_NAME:
        backend = _byte_level(tokens, listed["merges"], split)
    elif kind == "gemma4" and "merges" in listed:
        backend = _of_characters(tokens, listed["merges"], named.get("unk_token"))
    else:
        raise UnsupportedModel(
            f"{file.path}: tokenizer {kind!r} with pre-tokenizer {split!r} is not among those that Eddy reads from "
            f"GGUF; {HUB}"
        )
    kinds = dict(zip(tokens, listed.get("token_type", ()), strict=False))
    control = [token for token, kind in kinds.items() if kind in (_UNKNOWN, _CONTROL) or token in _ENDS]
    whole = [token for token, kind in kinds.items() if kind == _USER_DEFINED and token not in _ENDS]
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in control])
    backend.add_tokens([AddedToken(token, normalized=False) for token in whole])
    start = said.get("add_bos_token", kind in ("llama", "gemma4") or split in _WHOLE_WORDS)
    _bracket(file, backend, named, start=bool(start), end=bool(said.get("add_eos_token", False)))
    make: Any = PreTrainedTokenizerFast  # which has no types
    return make(  # type: ignore[no-any-return]
        tokenizer_object=backend,
        chat_template=file.metadata.get("tokenizer.chat_template"),
        clean_up_tokenization_spaces=False,
        model_max_length=int(file.get("context_length")),
        **named,
    )


def _byte_level(tokens: list[str], listed: list[str], split: str) -> Tokenizer:
    numbers = {token: number for number, token in enumerate(tokens)}
    merges: Any = [tuple(merge.split(" ", 1)) for merge in listed]
    backend = Tokenizer(models.BPE(numbers, merges, ignore_merges=split in _WHOLE_WORDS))
    splits = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in _BY_NAME[split]]
    bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([*splits, bytewise])
    backend.decoder = decoders.ByteLevel()
    return backend


def _sentencepiece(tokens: list[str], listed: list[float], unknown: str | None, prefixed: bool) -> Tokenizer:
    """Return BPE that joins the neighbours whose joint piece scores highest, with bytes for what is missing."""
    numbers = {token: number for number, token in enumerate(tokens)}
    scores = dict(zip(tokens, listed, strict=False))
    pairs = [
        (piece[:cut], piece[cut:])
        for piece in numbers
        for cut in range(len(piece) - 1, 0, -1)
        if piece[:cut] in numbers and piece[cut:] in numbers
    ]
    pairs.sort(key=lambda pair: scores["".join(pair)], reverse=True)
    backend = Tokenizer(models.BPE(numbers, pairs, unk_token=unknown, byte_fallback=True))
    # A space is put ahead of every text, of one that begins with a space too.
    backend.normalizer = normalizers.Sequence(
        [*([normalizers.Prepend("▁")] if prefixed else []), normalizers.Replace(" ", "▁")]
    )
    strip = [decoders.Strip(" ", 1, 0)] if prefixed else []
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    return backend


def _of_characters(tokens: list[str], listed: list[str], unknown: str | None) -> Tokenizer:
    """Return BPE over characters, with bytes for what is missing; no merge crosses the ends of lines."""
    numbers = {token: number for number, token in enumerate(tokens)}
    # A merge may hold line breaks, but no space: those are replaced.
    merges: Any = [tuple(merge.split(" ", 1)) for merge in listed]
    backend = Tokenizer(models.BPE(numbers, merges, unk_token=unknown, byte_fallback=True))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[^\n]+|\n+"), behavior="isolated")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    breaks = [token for token in tokens if token and not token.strip("\n")]
    backend.add_tokens([AddedToken(token, normalized=False) for token in breaks])
    return backend


def _bracket(file: GgufFile, backend: Tokenizer, named: dict[str, str], *, start: bool, end: bool) -> None:
    """Put the start and end tokens around every text that the file asks for."""
    template, special = ["$A"], {}
    for wanted, name, place in ((start, "bos_token", 0), (end, "eos_token", 2)):
        token = named.get(name, "")
        number = backend.token_to_id(token)
        if wanted and number is None:
            raise UnsupportedModel(f"{file.path} asks for a {name} with every text, and {token!r} is none")
        if wanted:
            template.insert(place, token)
            special[token] = number
    backend.post_processor = processors.TemplateProcessing(single=template, special_tokens=list(special.items()))
