"""The language model that does the work: shared or loaded up to the exit, run on packed sequences, left as is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn

from eddy_embed.errors import InterventionDidNotRun, UnsupportedModel
from eddy_embed.model import self_check
from eddy_embed.model.attention.blocked import AttentionSpec, group
from eddy_embed.model.attention.kernels import OWN, KernelChoice, group_for
from eddy_embed.model.attention.watcher import AttentionRecorder
from eddy_embed.model.devices import to_device
from eddy_embed.model.hooks import (
    ATTENTION,
    RUNS,
    PassEnded,
    PassState,
    SoftmaxTemperatureMode,
    by_distance,
    current,
    install,
    register,
)
from eddy_embed.model.loading.peft import adapters, base_of
from eddy_embed.model.packed import PackedWeight
from eddy_embed.model.products import pad_rows, use_fused_norms, use_onednn
from eddy_embed.model.self_check import FLOAT32, HALF, SelfCheck
from eddy_embed.model.view import (
    device_of,
    find_layers,
    modules_after_layers,
    named_tensors,
    quantised,
    relevant_config,
    rows_of_positions,
    spread_of,
    text_model,
    trial,
    view_of,
)
from eddy_embed.parts.attention import ExtraKeyValues
from eddy_embed.parts.copy_edges import CopyEdges
from eddy_embed.text.sequence import Packed, pack, padded_rows, without_placeholders
from eddy_embed.utils.arrays import Ints

TEMPERATURE = "a temperature"
TRIED = 12
"""Tokens of the text on which a model is tried."""


class ModelView:
    """A language model from its embeddings up to the exit layer."""

    def __init__(self, model: nn.Module, *, exit_layer: int, layers: int) -> None:
        """Make a view of a model and check on a tiny text that it computes what the model computes.

        Args:
            model: A transformers model, with or without its language-model head.
            exit_layer: The layer M to read; the view ends there.
            layers: Number L of layers of the full model.

        Raises:
            UnsupportedModel: The view would not give the model's own hidden states.
            NotFinite: The model gives NaN or infinity.
        """
        self.exit_layer, self.layers = exit_layer, layers
        self.kept = max(exit_layer, 1)  # h[0] is read on the way into the first layer
        self.first_position = 0  # where the model's own positions begin
        self.own = False  # whether the model computes attention itself, out of our reach
        self._looks_ahead = False  # whether tokens of such a model see later ones
        self.specs: tuple[AttentionSpec, ...] = ()
        self._kernels: dict[tuple[ExtraKeyValues | None, bool], tuple[KernelChoice, ...]] = {}
        self.name = type(model).__name__
        base = base_of(model) if hasattr(model, "get_base_model") else getattr(model, "base_model", model)
        with trial(base):
            self._make_view(base)
            modules, embedding = list(self._view.modules()), self._view.get_input_embeddings()
            adapted = any(type(module).__module__.startswith("peft.") for module in modules)
            self.adapters = adapters(self._view) if adapted else []  # refused before a pass changes shared weights
            self.device = device_of(embedding)
            self.dtype = next(p.dtype for p in self._view.parameters() if p.is_floating_point())
            self.tolerance = HALF if self.dtype.itemsize < 4 or quantised(self._view) else FLOAT32
            self.dtype_name = str(self.dtype).removeprefix("torch.")
            (use_fused_norms if self.device.type == "cuda" else use_onednn)(self._view)
            install(embedding, self._stack, [m for m in modules if type(m).__name__.endswith("RotaryEmbedding")])
            self._rows = int(getattr(embedding, "num_embeddings", 0) or embedding.weight.shape[0])
            self._check()

    def _make_view(self, base: nn.Module) -> None:
        """Copy a base model around its weights, and cut the copy down to the text model's layers up to the exit."""
        self._view = view_of(text_model(base))
        if getattr(self._view, "pooler", None) is not None:
            self._view.pooler = None  # nobody reads its output
        stack = find_layers(self._view)
        children = ((parent, *named) for parent in self._view.modules() for named in parent.named_children())
        self._parent, name = next((parent, name) for parent, name, child in children if child is stack)
        self._stack = nn.ModuleList(list(stack)[: self.kept])
        setattr(self._parent, name, self._stack)
        self._view.config.num_hidden_layers = self.kept
        if getattr(self._view.config, "is_encoder_decoder", False):
            self._view.config.is_encoder_decoder = False  # no decoder is in the view
        self._view.eval()

    @property
    def width(self) -> int:
        """Width of a hidden state."""
        return int(self._view.config.hidden_size)

    @property
    def bidirectional(self) -> bool:
        """Whether tokens see later ones."""
        return self._looks_ahead or any(not spec.causal for spec in self.specs)

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration that decides hidden states, as plain values, and what was found in the attention layers."""
        config, attention = relevant_config(self._view.config, self.kept), [spec.stated for spec in self.specs]
        return {"config": config, "attention": attention, **({"adapters": self.adapters} if self.adapters else {})}

    @property
    def packed(self) -> bool:
        """Whether a layer's weights are unpacked each time that they are multiplied by."""
        return any(isinstance(module, PackedWeight) for module in self._stack.modules())

    @property
    def bytes(self) -> int:
        """Bytes of the tensors that the view reads: embeddings and kept layers."""
        return sum(tensor.numel() * tensor.element_size() for _, tensor in self.tensors())

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield names and tensors of the view, each tensor once."""
        yield from named_tensors(self._view)

    def weights(self) -> Iterator[tuple[str, torch.Tensor | PackedWeight]]:
        """Yield what decides hidden states, whether it is packed or not: `tensors`, but packed matrices as modules."""
        packed = {name: module for name, module in self._view.named_modules() if isinstance(module, PackedWeight)}
        for name, tensor in self.tensors():
            parent, _, last = name.rpartition(".")
            if parent not in packed or last == "bias":
                yield name, tensor
        yield from ((f"{name}.weight", module) for name, module in packed.items())

    def placeholder_values(self, rewire: CopyEdges, space: int | None = None) -> torch.Tensor:
        """Return values of PST and B-PST, shape (2, width); `space`: id of a blank whose embedding they have."""
        embedding = self._view.get_input_embeddings()
        if space is not None:
            with torch.inference_mode():
                return embedding(torch.tensor([space] * 2, device=self.device))  # type: ignore[no-any-return]
        spread = spread_of(embedding, int(self._view.config.vocab_size), self.device)
        return torch.from_numpy(rewire.initial(self.width, spread)).to(self.device, self.dtype)

    def run(
        self,
        packed: Packed,
        rewired: range,
        values: torch.Tensor | None,
        factors: list[float] | None = None,
        reroute: ExtraKeyValues | None = None,
        layers: tuple[int, ...] | None = None,
        watcher: AttentionRecorder | None = None,
        rows: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return hidden states at the exit layer, or at several layers up to it.

        Args:
            packed: The sequences.
            rewired: Indices l whose state h[l] is copied along the edges on its way into layer l+1.
            values: Values of the two kinds of placeholder, shape (2, width); needed where the sequences hold any.
            factors: Factor on the logits of each sequence, None for 1.
            reroute: Extra entries in the attention of some layers, None for none.
            layers: Layers l whose states are read, each at most M; None: M alone.
            watcher: Observes the attention of layers.
            rows: Tokens whose states are read, None for all; of the others nothing is kept.

        Returns:
            The h[l] side by side, shape (tokens, layers * width), in the model's dtype.

        Raises:
            InterventionDidNotRun: A copy, a placeholder or an attention layer did not run as often as it must.
        """
        if int(packed.ids.max()) >= self._rows:
            raise UnsupportedModel(
                f"{self.name} has {self._rows} token embeddings, and the tokenizer gives {int(packed.ids.max())}: they "
                "do not belong together; pass tokenizer= the one that the model was trained with"
            )
        wanted = (self.exit_layer,) if layers is None else layers
        if self.own:
            return self._run_rows(packed, rewired, values, factors, wanted, rows)
        kernels = self.kernels(reroute, watcher is not None)
        groups = group_for(kernels, packed.offsets, factors, self.bidirectional, self.device)
        call = PassState(
            groups,
            reroute=reroute,
            watcher=watcher,
            specs=self.specs,
            kernels=kernels,
            captures=frozenset(wanted),
            last=self._last(wanted, watcher),
            rows=rows,
        )
        if watcher is not None:
            watcher.begin(groups, packed.offsets)
        run = self.kept if call.last is None else call.last
        routes = sum(layer <= run for layer in reroute.known) if reroute else 0
        inside = {"attention": run, "re-routing": routes, "watch": sum(map(call.watches, range(1, run + 1)))}
        self._run_counted(call, packed, rewired, values, inside)
        return call.side_by_side(wanted)

    def _run_rows(
        self,
        packed: Packed,
        rewired: range,
        values: torch.Tensor | None,
        factors: list[float] | None,
        wanted: tuple[int, ...],
        rows: torch.Tensor | None,
    ) -> torch.Tensor:
        """Run a model that computes attention itself: sequences of like length as the rows of a batch.

        Padding comes after a row's tokens, where causality hides it from them; if tokens see later ones, only sequences
        of equal length share a batch.
        """
        states = torch.empty(0, device=self.device)
        for members in group(packed.offsets, factors, even=self.bidirectional):
            part = padded_rows(packed, members.rows.numpy())
            factor = None if factors is None else members.factor
            call = PassState([], captures=frozenset(wanted), last=self._last(wanted), factor=factor)
            softmaxes = 0 if factors is None else self.kept if call.last is None else call.last
            self._run_counted(call, part, rewired, values, {"softmax": softmaxes})
            batch = call.side_by_side(wanted)
            if not len(states):
                states = batch.new_empty(len(packed.ids), batch.shape[1])
            states[members.tokens.to(batch.device)] = batch[members.real.to(batch.device)]
        return states if rows is None else states[rows.to(states.device)]

    def _run_counted(
        self, call: PassState, packed: Packed, rewired: range, values: torch.Tensor | None, inside: dict[str, int]
    ) -> None:
        """Run a pass with its placeholders and copies; check that it changed attention as often as `inside` says."""
        if len(packed.placeholders):
            if values is None:
                raise InterventionDidNotRun("the sequences hold placeholders, but no values were given for them")
            placed = to_device(packed.placeholders, self.device)
            call.placeholders = (placed[:, 0], values[placed[:, 1]])
        if len(packed.edges):
            call.edges, call.rewired = to_device(packed.edges, self.device), rewired
        self._forward(packed, call)
        copies = sum(call.last is None or index < call.last for index in call.rewired)
        expected = dict.fromkeys(RUNS, 0) | {"embedding": 1, "copy": copies} | inside
        if call.ran != expected or call.captured.keys() != call.captures:
            raise InterventionDidNotRun(
                f"{self.name}: expected {expected} runs, counted {call.ran}; no vector is returned"
            )

    def check_attention_reachable(self, asked: list[str]) -> None:
        """Refuse what a method asks of attention (in words) if the model computes it itself; a `TEMPERATURE` may do."""
        if self.own and asked and not (asked == [TEMPERATURE] and self._softmax_found()):
            raise UnsupportedModel(
                f"{self.name} computes its attention itself, past transformers' registry, so {' and '.join(asked)} "
                "cannot be put into it; use a method that leaves attention as it is, such as plain, prompteol or htp"
            )

    def _softmax_found(self) -> bool:
        """Return whether the softmax of every layer's attention is found."""
        call = PassState([], factor=1.0)
        self._forward(pack([without_placeholders(self._trial_ids(TRIED))]), call)
        return call.ran["softmax"] == self.kept

    def kernels(self, reroute: ExtraKeyValues | None, watched: bool) -> tuple[KernelChoice, ...]:
        """Return the kernels of each layer, chosen once for a method, and compared with the blocked one at once."""
        if self.own:
            return (OWN,) * self.kept
        key = (reroute, watched)
        if key not in self._kernels:
            text = pack([without_placeholders(self._trial_ids(TRIED))])
            check = SelfCheck(self.name, self._forward, text, self.specs, self.exit_layer, self.tolerance)
            self._kernels[key] = check.kernels(reroute, watched)
        return self._kernels[key]

    def _trial_ids(self, length: int) -> Ints:
        """Return token ids without that of padding, to which RoBERTa gives no position of its own."""
        padding = getattr(self._view.config, "pad_token_id", None)
        ids = np.arange(length, dtype=np.int64) * 7919 % (int(self._view.config.vocab_size) - (padding is not None))
        return ids if padding is None else ids + (ids >= padding)

    def _last(self, wanted: tuple[int, ...], watcher: AttentionRecorder | None = None) -> int | None:
        """Return the layer behind which a pass may end that reads the states `wanted`, None for a whole pass."""
        return max(wanted) if watcher is None and max(wanted) < self.kept else None

    def _forward(self, packed: Packed, call: PassState, counted: bool = True) -> None:
        """Run a pass; not `counted`: the model counts positions itself."""
        # Our attention, and nothing else, mixes rows: it takes all sequences in one, the model's own one in each.
        rows, call.tokens = len(packed.offsets) - 1 if self.own else 1, len(packed.ids)
        padding = pad_rows(call.tokens, self.device) - call.tokens if call.kernels is not None else 0
        arrays = (np.pad(array, (0, padding)) for array in (packed.ids, packed.positions + self.first_position))
        ids, positions = (to_device(array.reshape(rows, -1), self.device) for array in arrays)
        inside = call.factor is not None  # a temperature of attention that the model computes itself
        temperature = SoftmaxTemperatureMode(call, ids.shape, self._view.config) if inside else nullcontext()
        token = current.set(call)
        try:
            with torch.inference_mode(), temperature:
                out = self._view(input_ids=ids, position_ids=positions if counted else None, use_cache=False)
        except PassEnded:
            return
        finally:
            current.reset(token)
        if not hasattr(out, "last_hidden_state"):
            raise UnsupportedModel(
                f"{self.name} gives no hidden states, and the model inside it was not found; hand over that one, such "
                "as model.model"
            )
        states: torch.Tensor = out.last_hidden_state.flatten(0, 1)[: call.tokens]
        call.capture(self.layers, states)

    def _check(self) -> None:
        """Compare the view with the model's own attention, and packed sequences with the same ones run alone.

        This finds architectures that bypass the attention registry, mix neighbouring tokens in other ways, or treat
        positions differently, whatever their class is called. One pass runs to the exit, above `depth` without products
        of packed weights; the compared ones end there, once every kind of layer has run: large models make passes long.
        """
        # Two sequences of equal length in a row take another path through attention than others.
        texts = [*np.split(self._trial_ids(TRIED - 2), 2), self._trial_ids(TRIED - 2), self._trial_ids(TRIED)]
        alone = [pack([without_placeholders(ids)]) for ids in texts]
        together = pack([without_placeholders(ids) for ids in texts])
        depth = self_check.depth_of_kinds(self._stack, self._view.config) if self.exit_layer else 0
        original = self._view.config._attn_implementation
        settable = self._view._can_set_attn_implementation()  # setting it elsewhere only makes a warning
        if settable:
            self._view.set_attn_implementation("eager")

        def run_alone() -> torch.Tensor:
            return torch.cat([self._states(packed, depth, counted=False) for packed in alone])

        with rows_of_positions(self._view) as first_rows:
            expected = run_alone()
        self.first_position = first_rows[0] if first_rows else 0
        if settable:
            register()
            by_distance(self._view)
            self._view.set_attn_implementation(ATTENTION)
        call = PassState(group(together.offsets), captures=frozenset({self.exit_layer}))
        with self_check.without_products(self._stack[depth:]):
            after = modules_after_layers(self._parent, self._stack, lambda: self._forward(together, call))
        self.specs = tuple(call.declared_specs)
        self_check.check_reached(self.name, len(self.specs), self.kept)
        self._kernels[None, False] = tuple(call.chosen_kernels)  # what `kernels` would choose in one more pass
        self.own = not self.specs
        if self.own:
            if settable:
                self._view.set_attn_implementation(original)
            followed = (texts[-1], np.tile(texts[-1][: TRIED // 2], 2))  # the same tokens, followed by others
            self._looks_ahead = self_check.looks_ahead(
                *(self._states(pack([without_placeholders(ids)]), depth)[: TRIED // 2] for ids in followed)
            )
        if self.exit_layer < self.layers:
            for name in after:  # such as the final norm, which nobody reads
                setattr(self._parent, name, nn.Identity())
        kinds = list(getattr(self._view.config, "layer_types", None) or [])[: self.kept]
        self_check.check_windows(self.name, self.specs, kinds, call.mask_windows)
        for states in (expected, call.captured[self.exit_layer]):
            self_check.check_sound(self.name, states, self.width)
        ours = self.run(together, range(0), None, layers=(depth,))
        allowed = self.tolerance / (2 if depth < self.kept else 1)  # the more layers, the more roundings
        if self.specs and self_check.state_difference(ours, expected, allowed) > allowed:
            expected = self_check.by_sdpa(self._view, run_alone, expected)
        self_check.check_states_equal(self.name, ours, expected, allowed)

    def _states(self, packed: Packed, layer: int, counted: bool = True) -> torch.Tensor:
        call = PassState(group(packed.offsets), captures=frozenset({layer}), last=self._last((layer,)))
        self._forward(packed, call, counted)
        return call.captured[layer]
