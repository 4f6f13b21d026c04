"""Which methods run on which family of models; docs/models.md has the same as a table, with the reasons."""

from __future__ import annotations

ALL = frozenset(
    {
        *("llama", "qwen3", "gpt2", "gemma2", "mistral", "qwen2", "gemma3", "phi3", "gpt_neox", "olmo2", "mixtral"),
        *("qwen3_moe", "phi", "smollm3", "stablelm", "granite", "gpt_oss", "opt"),
    }
)
"""Families on which every method runs."""
OWN_ATTENTION = frozenset({"falcon", "bloom", "gptj", "gpt_neo"})
"""Families that compute their attention themselves."""
ENCODERS = frozenset({"bert", "roberta", "xlm_roberta", "distilbert", "modernbert", "mpnet", "t5", "mt5", "umt5"})
"""Families that read in both directions."""


def methods_on(family: str) -> str:
    """The methods that run on a family, in words; `family` is a model type of transformers, or GGUF's architecture."""
    name = _name(family)
    if name in ALL:
        return "all"
    if name in OWN_ATTENTION:
        return "all but kv, reroute, reba"
    if name in ENCODERS:
        return "plain, tempscale, firstlastavg, standardise"
    return "not tested; opening it tells"


def is_encoder(family: str) -> bool:
    """Whether a family is known to read in both directions."""
    return _name(family) in ENCODERS


def _name(family: str) -> str:
    return family.replace("-", "_").removesuffix("_text")
