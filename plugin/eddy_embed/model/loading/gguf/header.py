"""The header of a GGUF file, and the architectures that open."""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from eddy_embed.errors import ModelNotFound, UnsupportedModel
from eddy_embed.model.loading.names import check_fetched

NUMBER = (int, float)
YARN = {"yarn_beta_fast": "beta_fast", "yarn_beta_slow": "beta_slow"}
"""Settings of `rope.scaling`, and what transformers calls them."""


@dataclass(frozen=True)
class Architecture:
    """What belongs to one architecture.

    Attributes:
        config: Its configuration in transformers, by the name of the class.
        carried: Settings of GGUF's that an entry of the configuration stands for: type, and name of the entry.
        settings: Further settings of GGUF's, which code reads, and their types.
        fixed: Entries of the configuration that llama.cpp takes for granted.
        pairs: Whether the rows of queries and keys are sorted for angles that turn neighbours.
        partial: Whether angles may turn a part of each head alone.
        norm_offset: What norms have more in the file than in the model.
        names: Tensors of a layer that `gguf` has no names for, by those of transformers.
    """

    config: str
    carried: dict[str, tuple[Any, str]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)
    pairs: bool = False
    partial: bool = False
    norm_offset: float = 0.0
    names: dict[str, str] = field(default_factory=dict)

    @property
    def known(self) -> dict[str, Any]:
        """The types of all settings that are not those of every architecture."""
        return self.settings | {key: kind for key, (kind, _) in self.carried.items()}


_WINDOW = {"attention.sliding_window": int}
_GEMMA = _WINDOW | {"attention.sliding_window_pattern": (int, list), "final_logit_softcapping": NUMBER}
ARCHITECTURES = {
    "llama": Architecture("LlamaConfig", pairs=True),  # Mistral's and SmolLM's files say llama too
    "qwen2": Architecture("Qwen2Config"),
    "qwen3": Architecture("Qwen3Config"),
    "qwen3moe": Architecture(
        "Qwen3MoeConfig",
        carried={
            "expert_count": (int, "num_experts"),
            "expert_used_count": (int, "num_experts_per_tok"),
            "expert_feed_forward_length": (int, "moe_intermediate_size"),
        },
        fixed={"norm_topk_prob": True},
    ),
    "gemma2": Architecture("Gemma2Config", settings=_GEMMA | {"attn_logit_softcapping": NUMBER}, norm_offset=1.0),
    "gemma3": Architecture("Gemma3TextConfig", settings=_GEMMA | {"rope.freq_base_swa": NUMBER}, norm_offset=1.0),
    "phi3": Architecture("Phi3Config", settings=_WINDOW, partial=True),
    "granite": Architecture(
        "GraniteConfig",
        carried={
            "attention.scale": (NUMBER, "attention_multiplier"),
            "embedding_scale": (NUMBER, "embedding_multiplier"),
            "residual_scale": (NUMBER, "residual_multiplier"),
            "logit_scale": (NUMBER, "logits_scaling"),
        },
        pairs=True,
    ),
    "smollm3": Architecture("SmolLM3Config", fixed={"no_rope_layer_interval": 4}, pairs=True),
    "olmo2": Architecture("Olmo2Config"),
    "glm4": Architecture("Glm4Config", partial=True),
    "gemma4": Architecture(
        "Gemma4TextConfig",
        carried={
            "expert_count": (int, "num_experts"),
            "expert_used_count": (int, "top_k_experts"),
            "expert_feed_forward_length": (int, "moe_intermediate_size"),
            "final_logit_softcapping": (NUMBER, "final_logit_softcapping"),
            "attention.sliding_window": (int, "sliding_window"),
        },
        settings={
            "attention.head_count_kv": (int, list),
            "attention.sliding_window_pattern": (int, list),
            "rope.freq_base_swa": NUMBER,
            **dict.fromkeys(
                ("attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"), int
            ),
            **dict.fromkeys(("embedding_length_per_layer_input", "attention.shared_kv_layers"), int),
        },
        names={"router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale"},
    ),
    "mistral3": Architecture(
        "Ministral3Config",
        settings={"attention.temperature_scale": NUMBER, "rope.scaling.yarn_log_multiplier": NUMBER},
        pairs=True,
    ),
    "gpt-oss": Architecture(
        "GptOssConfig",
        carried={
            "attention.sliding_window": (int, "sliding_window"),
            "expert_count": (int, "num_local_experts"),
            "expert_used_count": (int, "num_experts_per_tok"),
            "expert_feed_forward_length": (int, "intermediate_size"),
        },
    ),
    "command-r": Architecture(
        "CohereConfig",
        carried={"logit_scale": (NUMBER, "logit_scale"), "attention.layer_norm_epsilon": (NUMBER, "layer_norm_eps")},
    ),
}
"""By GGUF's names."""
_RUNS_ON = "which would run on from one text of a pass into the next"
REFUSED = {
    "llama4": "its layers hide keys beyond 8192 tokens by a mask that they do not announce",
    "gemma3n": "its layers hand on four streams of states (AltUp), of which none is the token's state",
    **dict.fromkeys(("qwen35", "qwen35moe", "qwen3next"), f"most of its layers are linear attention, {_RUNS_ON}"),
    **dict.fromkeys(("lfm2", "lfm2moe"), f"most of its layers are convolutions, {_RUNS_ON}"),
}
"""Architectures that the engine does not run exactly, by GGUF's names, and why."""


VERSIONS = (2, 3)
TYPES = frozenset(
    {
        *("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
        *("IQ4_NL", "IQ4_XS", "MXFP4"),
    }
)
"""Types of blocks that `packed.formats` reads; this module does without torch."""
UNPACKED = 2**29
"""Most bytes of the linear layers that are read which are unpacked when a file is opened: packed, a small model takes
three times as long for a question."""
_ENCODERS = re.compile(r".*bert.*|.*embedding|t5encoder|nomic.*")
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
_OTHER_SENSES = re.compile(r"(v|a|mm)\..*")
HUB = "name the same model's Hugging Face id or folder"
"""What to do instead."""
_SETTINGS: dict[str, Any] = {
    **dict.fromkeys(("context_length", "embedding_length", "block_count", "feed_forward_length", "vocab_size"), int),
    **dict.fromkeys((f"attention.{key}" for key in ("head_count", "head_count_kv", "key_length", "value_length")), int),
    **dict.fromkeys(("rope.dimension_count", "rope.scaling.original_context_length", "pooling_type"), int),
    **dict.fromkeys(("expert_count", "expert_used_count"), int),
    **dict.fromkeys(("attention.layer_norm_rms_epsilon", "rope.freq_base"), NUMBER),
    **dict.fromkeys((f"rope.scaling.{key}" for key in ("factor", "attn_factor", *YARN)), NUMBER),
    **dict.fromkeys(("attention.causal", "rope.scaling.finetuned"), bool),
    "rope.scaling.type": str,
}
"""Settings of every architecture that are carried over, or checked to change nothing, and the types of their values."""


class Tensor(NamedTuple):
    """A tensor of a file: its shape as torch has it, and where its bytes are."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    start: int
    size: int
    path: Path

    @property
    def values(self) -> int:
        """Number of values."""
        return prod(self.shape)


@dataclass(frozen=True, eq=False)
class GgufFile:
    """A GGUF file: its metadata by key, in which a long array stands as its length, and its tensors.

    A model in several parts is one file, whichever of them is named; `path` is the first one.
    """

    path: Path
    metadata: dict[str, Any]
    tensors: tuple[Tensor, ...]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> GgufFile:
        """Read the metadata and the table of tensors.

        Raises:
            ModelNotFound: The file is no whole GGUF file of version 2 or 3, or a part of it is missing.
            UnsupportedModel: A tensor has a quantisation type that cannot be read.
        """
        parts = _parts(Path(path))
        metadata, tensors = _header(parts[0])
        if not isinstance(metadata.get("general.architecture"), str):
            raise ModelNotFound(f"{parts[0]} is damaged (no general.architecture); fetch it again")
        count = metadata.get("split.count", 1)
        if count not in (0, len(parts)):
            raise ModelNotFound(
                f"{path} is one of {count} parts by its metadata; name them NAME-00001-of-{count:05}.gguf and so on"
            )
        for part in parts[1:]:
            tensors += _header(part)[1]
        return cls(parts[0], metadata, tensors)

    @property
    def bytes(self) -> int:
        """Size on disk, of all parts."""
        return sum(part.stat().st_size for part in {self.path, *(tensor.path for tensor in self.tensors)})

    def arrays(self, *keys: str) -> dict[str, list[Any]]:
        """Return arrays of the metadata that are too long to be kept, those that are there."""
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            metadata, _ = _Cursor(data, keys).header(self.path)
        return {key: metadata[key] for key in keys if isinstance(metadata.get(key), list)}

    @property
    def memory(self) -> int:
        """Bytes of all weights when the file is open in bfloat16."""
        matrices = (tensor for tensor in self.tensors if len(tensor.shape) > 1 and tensor.name.startswith("blk."))
        linear = sum(matrix.values for matrix in matrices)
        return self.bytes + (2 * linear if 2 * linear <= UNPACKED else 0)

    @property
    def architecture(self) -> str:
        """GGUF's name of the architecture."""
        return str(self.metadata["general.architecture"])

    @property
    def values(self) -> int:
        """Values of all tensors."""
        return sum(tensor.values for tensor in self.tensors)

    @property
    def quantisation(self) -> str:
        """The type that most values have, such as Q4_K."""
        kinds: Counter[str] = Counter()
        for tensor in self.tensors:
            kinds[tensor.kind.name] += tensor.values
        return kinds.most_common(1)[0][0] if kinds else "no tensors"

    def get(self, key: str, default: Any = None) -> Any:
        """Return a setting of the architecture, such as `block_count`."""
        return self.metadata.get(f"{self.architecture}.{key}", default)

    def check(self) -> None:
        """Raise UnsupportedModel, with what to do instead, where this is no decoder that can be converted exactly."""
        if reason := self._other_kind() or self._partial() or self._unknown():
            raise UnsupportedModel(f"{self.path}: {reason}")

    def _other_kind(self) -> str:
        kind, said = self.architecture, str(self.metadata.get("general.type", "model"))
        if kind in ("clip", "whisper") or said == "mmproj" or "wav" in kind:
            return f"a model of images or sound ({kind}), not of text; name the language model's own file"
        if said != "model":
            return f"holds {said!r}, not a model; name the model's own file"
        if _ENCODERS.fullmatch(kind) or self.get("pooling_type") or self.get("attention.causal") is False:
            return (
                f"an embedding model ({kind}), whose pooling and prompts GGUF does not hold in full; name its Hugging "
                "Face id or folder, where Eddy reads them"
            )
        if kind in REFUSED:
            return f"architecture {kind!r} cannot be run exactly ({REFUSED[kind]}); name another model"
        if kind not in ARCHITECTURES:
            return (
                f"architecture {kind!r} is not among those that Eddy opens from GGUF ({', '.join(ARCHITECTURES)}); "
                f"{HUB}"
            )
        return ""

    def _partial(self) -> str:
        if name := next((tensor.name for tensor in self.tensors if _OTHER_SENSES.fullmatch(tensor.name)), ""):
            return f"holds a model of images or sound too ({name}); name a file of the language model alone"
        return ""

    def _unknown(self) -> str:
        specific = ARCHITECTURES[self.architecture].known
        known = _SETTINGS | specific
        for key, value in self.metadata.items():
            if not key.startswith(f"{self.architecture}."):
                continue
            kind = known.get(key.removeprefix(f"{self.architecture}."))
            if kind is None:
                return f"{key}={value!r:.60} is a setting that Eddy does not know; {HUB}"
            if isinstance(value, list) and kind is int:
                return f"{key} differs between layers; {HUB}"
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                return f"{key}={value!r:.60} has a type that the setting cannot have; fetch the file again, or {HUB}"
        if self.get("expert_count", 0) and "expert_count" not in specific:
            return f"a mixture of {self.get('expert_count')} experts; {HUB}"
        return ""


def _parts(path: Path) -> list[Path]:
    """Return the parts of a split file, whichever is named, or the file alone.

    Raises:
        ModelNotFound: A part is missing.
    """
    named = _PART.fullmatch(path.name)
    if named is None:
        return [path]
    count = int(named[3])
    parts = [path.with_name(f"{named[1]}-{number:05}-of-{named[3]}.gguf") for number in range(1, count + 1)]
    if missing := [part.name for part in parts if not part.is_file()]:
        raise ModelNotFound(f"{path} is one of {count} parts, and {missing[0]} is not beside it; fetch it too")
    return parts


def _header(path: Path) -> tuple[dict[str, Any], tuple[Tensor, ...]]:
    """Return the metadata and the tensors of one file."""
    _check_start(path)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            metadata, tensors = _Cursor(data).header(path)
        except (struct.error, UnicodeDecodeError, _Damaged) as error:
            raise ModelNotFound(f"{path} breaks off in its header, or is damaged ({error}); fetch it again") from None
        except _UnknownType as error:
            raise UnsupportedModel(f"{path}: {error}; take the model as Q8_0, Q4_K_M or F16, or {HUB}") from None
        size = len(data)
    wanted = max((tensor.start + tensor.size for tensor in tensors), default=0)
    if size < wanted:
        raise ModelNotFound(f"{path} is cut off: {size:,} bytes of {wanted:,} are there; fetch the file again, whole")
    return metadata, tensors


class _Damaged(Exception):
    """A length or a type that no file has."""


class _UnknownType(Exception):
    """A quantisation type that cannot be read."""


class _Cursor:
    """Reads a header: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md."""

    _SCALARS: ClassVar = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    _STRING, _ARRAY = 8, 9
    _KEPT = 4096
    """Longest array that is kept: one entry a layer, not one a token."""

    def __init__(self, data: mmap.mmap, kept: Container[str] = ()) -> None:
        self.data, self.at = data, 8  # behind the magic bytes and the version
        self.kept = kept  # keys of long arrays that are wanted

    def header(self, path: Path) -> tuple[dict[str, Any], tuple[Tensor, ...]]:
        tensors, pairs = self.unpack("QQ")
        metadata: dict[str, Any] = {}
        for _ in range(pairs):
            key = self.string()
            metadata[key] = self.value(self.unpack("I")[0], key in self.kept)
        table = [self.tensor(path) for _ in range(tensors)]
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 8 or alignment % 8:
            raise _Damaged(f"general.alignment={alignment!r:.60}")
        base = -(-self.at // alignment) * alignment
        return metadata, tuple(entry._replace(start=base + entry.start) for entry in table)

    def tensor(self, path: Path) -> Tensor:
        name = self.string()
        shape = tuple(reversed(self.unpack(f"{self.unpack('I')[0]}Q")))
        number, offset = self.unpack("IQ")
        try:
            kind, block, size = _type_of(number)
        except ValueError:
            named = GGMLQuantizationType(number).name if number in set(GGMLQuantizationType) else f"type {number}"
            raise _UnknownType(f"the tensor {name} is quantised as {named}, which cannot be read") from None
        if not shape or min(shape) < 1 or shape[-1] % block or offset % 8:
            raise _Damaged(f"{name} of shape {shape} in blocks of {block} at {offset:,}")
        return Tensor(name, shape, kind, offset, prod(shape) // block * size, path)

    def unpack(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return values

    def skip(self, size: int) -> None:
        if self.at + size > len(self.data):
            raise _Damaged(f"{size:,} bytes at {self.at:,}")
        self.at += size

    def string(self) -> str:
        (size,) = self.unpack("Q")
        begin = self.at
        self.skip(size)
        return self.data[begin : self.at].decode("utf-8")

    def value(self, kind: int, kept: bool) -> Any:
        if kind == self._STRING:
            return self.string()
        if kind == self._ARRAY:
            item_kind, count = self.unpack("IQ")
            return self.array(item_kind, count, kept)
        if kind not in self._SCALARS:
            raise _Damaged(f"a value of type {kind}")
        return self.unpack(self._SCALARS[kind])[0]

    def array(self, kind: int, count: int, kept: bool) -> Any:
        if kind in self._SCALARS and count > self._KEPT and not kept:
            self.skip(struct.calcsize(f"<{self._SCALARS[kind]}") * count)
            return count
        if kind in self._SCALARS:
            return list(self.unpack(f"{count}{self._SCALARS[kind]}"))
        if kind != self._STRING:
            raise _Damaged(f"an array of type {kind}")
        at, length, data, end = self.at, struct.Struct("<Q").unpack_from, self.data, len(self.data)
        strings: list[str] = []
        for _ in range(count):  # 100,000 strings of a vocabulary: too many for calls of `string`
            begin = at + 8
            at = begin + length(data, at)[0]
            if at > end:
                raise _Damaged(f"a string that ends at {at:,}")
            if kept:
                strings.append(data[begin:at].decode("utf-8"))
        self.at = at
        return strings if kept else count


def _type_of(number: int) -> tuple[GGMLQuantizationType, int, int]:
    """Return a quantisation type, the values of its blocks and their bytes."""
    kind = GGMLQuantizationType(number)
    if kind.name not in TYPES:
        raise ValueError(kind.name)
    return kind, *GGML_QUANT_SIZES[kind]


def _check_start(path: Path) -> None:
    """Refuse what does not begin as a GGUF file of a known version does."""
    check_fetched(path)
    with path.open("rb") as file:
        start = file.read(24)
    if start[:4] != b"GGUF":
        raise ModelNotFound(f"{path} is no GGUF file: it begins with {start[:4]!r}; name a .gguf file")
    if len(start) < 24:
        raise ModelNotFound(f"{path} breaks off after {len(start)} bytes; fetch it again")
    (version,) = struct.unpack_from("<I", start, 4)
    (swapped,) = struct.unpack_from(">I", start, 4)
    if version > swapped:
        raise ModelNotFound(
            f"{path} was written for big-endian processors; convert it with `gguf_convert_endian.py FILE little`"
        )
    if version not in VERSIONS:
        known = " and ".join(map(str, VERSIONS))
        raise ModelNotFound(
            f"{path} is of GGUF version {version}, and those read are {known}; convert the model again with llama.cpp"
        )
