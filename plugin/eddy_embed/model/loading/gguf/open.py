"""GGUF files as models of transformers, whose matrices stay in the file: mapped, and unpacked as they are needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from gguf import MODEL_ARCH_NAMES, get_tensor_name_map
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForCausalLM, PreTrainedConfig

from eddy_embed.errors import UnsupportedModel
from eddy_embed.model.backbone import Backbone
from eddy_embed.model.devices import resolve_dtype
from eddy_embed.model.loading.gguf import header
from eddy_embed.model.loading.gguf.config import ROPE_TENSORS, config_of
from eddy_embed.model.loading.gguf.header import ARCHITECTURES, HUB, GgufFile
from eddy_embed.model.loading.gguf.header import Tensor as TensorInfo
from eddy_embed.model.loading.gguf.tokenizer import tokenizer_of
from eddy_embed.model.mapped_file import MappedFile
from eddy_embed.model.packed import FORMATS, PackedEmbedding, PackedExperts, PackedLinear
from eddy_embed.model.view import describe, keep_layers, layer_of
from eddy_embed.utils.memory import free_memory

_ENDS = (".weight", ".bias")
_SMALL = 1024
_SIZED = (torch.empty, torch.ones, torch.zeros, torch.full, torch.rand, torch.randn)


def open_gguf(
    where: str,
    *,
    device: str,
    dtype: str = "auto",
    exit_of: Callable[[Backbone], int] = lambda backbone: backbone.layers,
    tokenizer: Any | None = None,
    head: bool = False,
) -> tuple[nn.Module, Any, Backbone]:
    """Open a GGUF file, whose matrices stay packed; see `pretrained.load`."""
    file = GgufFile.read(where)
    file.check()
    config = config_of(file)
    backbone = describe(config)
    kept = backbone.layers if head else max(exit_of(backbone), 1)
    keep_layers(config, backbone.layers, kept)
    stored = torch.float32 if file.quantisation == "F32" else torch.bfloat16
    chosen = resolve_dtype(dtype, device, stored)
    model = packed_model(file, config, stored if chosen == "auto" else chosen, head=head)
    return model.to(device), tokenizer_of(file) if tokenizer is None else tokenizer, backbone


def packed_model(file: GgufFile, config: PreTrainedConfig, dtype: torch.dtype, *, head: bool) -> nn.Module:
    """Return the model of a file, with the layers that its configuration asks for, in evaluation mode.

    Embeddings, and linear layers that would fill more than `header.UNPACKED` or half of the memory that is free, read
    their weights from the mapped file; all else, such as norms, is unpacked.

    Args:
        file: The file, checked.
        config: Of `config_of`, with as many layers as are wanted.
        dtype: Type of the numbers that are computed with.
        head: Whether the model gets its language-model head.

    Raises:
        UnsupportedModel: A tensor is missing, has another shape, or has no place in the model.
        OSError: The file cannot be read.
    """
    make: Any = AutoModelForCausalLM  # which has no types
    with _WithoutMemory():
        whole = make.from_config(config, dtype=dtype, trust_remote_code=False)
    model = cast("nn.Module", whole if head else whole.base_model)
    linear = sum(module.weight.nbytes for module in whole.base_model.modules() if type(module) is nn.Linear)
    free = free_memory() or 2 * header.UNPACKED
    filling = _Filling(file, whole, dtype, small=linear <= min(header.UNPACKED, free // 2))
    prefix = "" if head else f"{whole.base_model_prefix}."
    for name, module in list(model.named_modules()):
        filling.fill(model, name, prefix, module)
    filling.check(config.num_hidden_layers, head)
    return model.eval()


class _Filling:
    """Puts a file's tensors into a model that was made without memory."""

    def __init__(self, file: GgufFile, whole: Any, dtype: torch.dtype, small: bool) -> None:
        self.file, self.dtype, self.small, self.kind = file, dtype, small, type(whole).__name__
        self.mapped = {path: MappedFile(path) for path in {tensor.path for tensor in file.tensors}}
        self.tensors = {tensor.name: tensor for tensor in file.tensors}
        self.tied: dict[int, TensorInfo] = {}
        self.rows: dict[str, Tensor] = {}
        self.used: set[str] = {f"rope_{name}.weight" for name in ROPE_TENSORS}
        number = next(key for key, name in MODEL_ARCH_NAMES.items() if name == file.architecture)
        self.names = get_tensor_name_map(number, int(file.get("block_count")))
        known = ARCHITECTURES[file.architecture]
        heads = {"attn_q": file.get("attention.head_count"), "attn_k": file.get("attention.head_count_kv")}
        self.heads: dict[str, int] = heads if known.pairs else {}
        self.offset, self.further = known.norm_offset, known.names

    def fill(self, model: nn.Module, name: str, prefix: str, module: nn.Module) -> None:
        """Give a module of a model what the file has for it."""
        if "gate_up_proj" in module._parameters:
            model.set_submodule(name, self._experts(module, layer_of(name)))
            return
        tensors = {
            kind: self._tensor(f"{prefix}{name}.{kind}", parameter)
            for kind, parameter in module.named_parameters(recurse=False)
        }
        if type(module) is nn.Linear:
            bias = None if module.bias is None else self._values(tensors["bias"]).to(self.dtype)
            raw, order = self._rows(tensors["weight"]), self._order(tensors["weight"])
            source = self.mapped[tensors["weight"].path]
            linear = PackedLinear(FORMATS[tensors["weight"].kind.name], raw, self.dtype, bias, order, source)
            if self.small:
                module.weight = nn.Parameter(linear.weight, requires_grad=False)
                module.register_parameter("bias", linear.bias)
            else:
                model.set_submodule(name, linear)
        elif isinstance(module, nn.Embedding):
            weight = tensors["weight"]
            scale = getattr(module, "embed_scale", None)
            source = self.mapped[weight.path]
            table = PackedEmbedding(FORMATS[weight.kind.name], self._rows(weight), self.dtype, scale, source)
            model.set_submodule(name, table)
        else:
            for kind, tensor in tensors.items():
                values = self._values(tensor).view(module.get_parameter(kind).shape).to(self.dtype)
                setattr(module, kind, nn.Parameter(values, requires_grad=False))
            for kind, buffer in [*module.named_buffers(recurse=False)]:
                if kind not in module._non_persistent_buffers_set:
                    setattr(module, kind, self._values(self._tensor(f"{prefix}{name}.{kind}", buffer)).to(self.dtype))
                elif buffer.is_meta:
                    raise UnsupportedModel(
                        f"{self.file.path}: {self.kind} computes {name}.{kind} in no known way; {HUB}"
                    )

    def _experts(self, module: Any, layer: int) -> PackedExperts:
        """Return experts, whose matrices the file stacks by their kind."""
        parts, count, biased = [], module.num_experts, "down_proj_bias" in module._parameters
        narrow, wide = module.down_proj.shape[1:]
        if biased:  # gpt-oss, whose matrices are on the other side of their product
            narrow, wide = wide, narrow
        for part, shape in (("gate", (wide, narrow)), ("up", (wide, narrow)), ("down", (narrow, wide))):
            name, bias = f"blk.{layer}.ffn_{part}_exps", None
            if biased:
                added = self._checked(f"{name}.bias", self.tensors.get(f"{name}.bias"), (count, shape[0]))
                bias = self._values(added).view(-1).to(self.dtype)
            joined = self.tensors.get(f"blk.{layer}.ffn_gate_up_exps.weight") if part != "down" else None
            rows = shape[0] if joined is None else 2 * wide
            stored = joined or self.tensors.get(f"{name}.weight")
            tensor = self._checked(f"{name}.weight", stored, (count, rows, shape[1]))
            raw, source, order = self._bytes(tensor).view(count * rows, -1), self.mapped[tensor.path], None
            if joined is not None:  # each expert's rows of one kind, and then of the other
                order = torch.arange(count * rows).view(count, 2, wide)[:, int(part == "up")].reshape(-1)
            parts.append(PackedLinear(FORMATS[tensor.kind.name], raw, self.dtype, bias, order, source))
        return PackedExperts(count, _gating(module, biased), *parts)

    def _tensor(self, name: str, parameter: Tensor) -> TensorInfo:
        """Return the file's tensor for a parameter, or that of the parameter whose weights it shares."""
        key = self.names.get_name(name, _ENDS) or ""
        if further := next((key for end, key in self.further.items() if name.endswith(f".{end}")), ""):
            key = f"blk.{layer_of(name)}.{further}"
        elif key and not key.endswith(_ENDS):  # a parameter that is no weight of a module's
            key += ".weight"
        tensor = self.tensors.get(key) or self.tied.get(id(parameter))
        checked = self._checked(key or name, tensor, tuple(parameter.shape))
        self.tied[id(parameter)] = checked
        return checked

    def _checked(self, name: str, tensor: TensorInfo | None, shape: tuple[int, ...]) -> TensorInfo:
        """Return a tensor that has a shape."""
        if tensor is None or tensor.shape != shape:
            said = f"lacks {name}" if tensor is None else f"has {name} in the shape {tensor.shape}"
            raise UnsupportedModel(f"{self.file.path} {said}, which {self.kind} has in the shape {shape}; {HUB}")
        self.used.add(tensor.name)
        return tensor

    def _rows(self, tensor: TensorInfo) -> Tensor:
        """Return the bytes of a matrix, shape (rows, bytes of a row): one tensor, however many modules read it."""
        if tensor.name not in self.rows:
            self.rows[tensor.name] = self._bytes(tensor).view(tensor.shape[0], -1)
        return self.rows[tensor.name]

    def _bytes(self, tensor: TensorInfo) -> Tensor:
        return self.mapped[tensor.path].tensor(tensor.start, tensor.size)

    def _order(self, tensor: TensorInfo) -> Tensor | None:
        """Return where a matrix's rows are in the file, where llama.cpp turned them in pairs: queries and keys."""
        heads = self.heads.get(tensor.name.split(".")[-2])
        if heads is None:
            return None
        return torch.arange(tensor.shape[0]).view(heads, -1, 2).transpose(1, 2).reshape(-1)

    def _values(self, tensor: TensorInfo) -> Tensor:
        """Return the values of a tensor that is no matrix, as the model has them, in float32."""
        values = FORMATS[tensor.kind.name].unpack(self._bytes(tensor).view(1, -1)).view(tensor.shape)
        if self.offset and tensor.name.endswith("norm.weight"):
            values -= self.offset
        order = self._order(tensor)
        return values if order is None else values[order]

    def check(self, layers: int, head: bool) -> None:
        """Refuse a file with tensors, among those of the layers, that the model has no place for."""
        above = () if head else ("output.weight", "output.bias")
        for name in self.tensors.keys() - self.used - set(above):
            if layer_of(name) < layers:
                raise UnsupportedModel(f"{self.file.path} holds {name}, which {self.kind} has no place for; {HUB}")


def _gating(experts: Any, in_turn: bool) -> Callable[[Tensor, Tensor], Tensor]:
    """Return how experts join what two of their matrices give; `in_turn`: they have a row of each in turn."""
    if in_turn:
        return lambda gate, up: experts._apply_gate(torch.stack([gate, up], -1).flatten(-2))
    return lambda gate, up: experts.act_fn(gate) * up


class _WithoutMemory(TorchFunctionMode):
    """Makes large tensors of a given size on the meta device, as weights are, and leaves what angles are made of."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Put what is made for its size on the meta device."""
        kwargs = dict(kwargs or {})
        if function in _SIZED and kwargs.get("device") is None:
            made = function(*args, **{**kwargs, "device": "meta"})
            if made.numel() > _SMALL:
                return made
        return function(*args, **kwargs)
