"""The method recommended for a model, by its shape and by what the vectors are for, which `recommended` stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from eddy_embed.methods.method import Method, Recommended
from eddy_embed.methods.registry import build, build_term, parse, register
from eddy_embed.model.backbone import Backbone, is_encoder
from eddy_embed.utils.checks import check_choice

_Shape = tuple[str, int, int, int]


@dataclass(frozen=True)
class Recommendation:
    """A method, and what it was chosen by.

    Attributes:
        method: Its text form; it works without a fit, and for retrieval gives vectors of passages.
        scores: By development set and metric, its score and that of `baseline`, both with `post`; empty if it was not
            measured.
        baseline: The text form of the method that it was compared with.
        post: Post-processing that gained on these sets, for a library that is large enough to fit it; "" for none.
    """

    method: str
    scores: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    baseline: str = "plain"
    post: str = ""

    @property
    def fitted(self) -> str:
        """The method with its post-processing."""
        return f"{self.method}+{self.post}" if self.post else self.method


@dataclass(frozen=True)
class ModelRecommendation:
    """What is recommended for models of a kind, and on what grounds.

    Attributes:
        grounds: Why, in words.
        best: For retrieval, by layers of the model where that finds more.
        fast: For retrieval, without a layer.
        similarity: For the similarity of sentences.
    """

    grounds: str
    best: Recommendation
    fast: Recommendation
    similarity: Recommendation

    @property
    def uses(self) -> dict[str, Recommendation]:
        """The recommendations, by use."""
        return {"retrieval": self.best, "fast": self.fast, "similarity": self.similarity}


USES = ("retrieval", "fast", "similarity")
_CHOSEN = "chosen for this model"
_FAST = Recommendation(
    "plain:exit=0+sif+filter",
    {"cranfield, ndcg@10, SmolLM2-135M": (0.320, 0.267), "cranfield, ndcg@10, Gemma 3 270M": (0.302, 0.256)},
    baseline="plain:exit=0+sif",
)
_SIMILARITY = Recommendation(
    "plain:exit=0+sif+filter",
    {"stsb_dev, spearman, SmolLM2-135M": (0.754, 0.768), "stsb_dev, spearman, Gemma 3 270M": (0.762, 0.664)},
    baseline="prompteol:exit=-2",
)


def _by_depth(layers: int) -> Recommendation:
    """Return the token embeddings with layers at an eighth, a sixth and a quarter of a model's depth."""
    last = max(layers // 4, 1)
    below = ",".join(map(str, sorted({0, layers // 8, layers // 6} - {last})))
    method = f'plain:exit={last}+sif+layeravg:layers="{below}"+standardise'
    return Recommendation(method, baseline="plain:exit=0+sif+filter")


_OWN: dict[_Shape, ModelRecommendation] = {
    # SmolLM2-135M
    ("llama", 30, 576, 49152): ModelRecommendation(
        _CHOSEN,
        best=replace(_by_depth(30), scores={"manuals, mrr@10, hybrid": (0.392, 0.340)}),
        fast=Recommendation("plain:exit=0+sif+filter", {"cranfield, ndcg@10": (0.320, 0.200)}, "plain:exit=1"),
        similarity=Recommendation(
            "prompteol:exit=-2", {"stsb_dev, spearman": (0.803, 0.784)}, "plain:exit=1", "whiten:power=0.5"
        ),
    ),
    # Gemma 3 270M
    ("gemma3_text", 18, 640, 262144): ModelRecommendation(
        _CHOSEN,
        best=_by_depth(18),
        fast=Recommendation("plain:exit=0+sif+filter", {"cranfield, ndcg@10": (0.302, 0.121)}, "plain:exit=0"),
        similarity=Recommendation(
            "echo:exit=-2", {"stsb_dev, spearman": (0.811, 0.758)}, "prompteol:exit=-2", "whiten:power=0.5"
        ),
    ),
    # eddy-tiny
    ("llama", 8, 320, 8192): ModelRecommendation(_CHOSEN, best=_FAST, fast=_FAST, similarity=_SIMILARITY),
}
"""By (architecture, layers, hidden, vocabulary) of the full model."""
_ENCODER = ModelRecommendation(
    "for models that read in both directions",
    best=Recommendation("plain:exit=0+sif"),
    fast=Recommendation("plain:exit=0+sif"),
    similarity=Recommendation("plain"),
)
"""A prompt has no use there, and `filter` needs token embeddings as wide as the states."""
_TRAINED = ModelRecommendation("as the model was trained", *[Recommendation("plain")] * 3)


@register
def recommended(use: str = "retrieval") -> Method:
    """The method recommended for the model; `eddy methods MODEL` shows it, with the scores it was chosen by.

    Args:
        use: What the vectors are for: "retrieval"; "fast", retrieval without a layer; or "similarity" of sentences.

    Raises:
        InvalidParameter: The use is unknown.
    """
    check_choice("recommended: use", use, USES)
    return build(recommended, {"use": use}, recommended=Recommended(use))


@register
def best() -> Method:
    """What is recommended for retrieval with the model, by its layers where they find more: `recommended`."""
    return build(best, {}, recommended=Recommended("retrieval"))


@register
def fast() -> Method:
    """What is recommended for retrieval with the model without running a layer: `recommended:use=fast`."""
    return build(fast, {}, recommended=Recommended("fast"))


def entry_for(backbone: Backbone) -> ModelRecommendation:
    """Return what is recommended for a model: its training's pooling, its own entry, or the generic one."""
    if backbone.pooling is not None:
        return _TRAINED
    if is_encoder(backbone.architecture):
        return _ENCODER
    shape = (backbone.architecture, backbone.layers, backbone.hidden, backbone.vocabulary)
    return _OWN.get(shape) or ModelRecommendation(
        "the rule for causal models", _by_depth(backbone.layers), _FAST, _SIMILARITY
    )


def with_recommended(method: Method, use: str, backbone: Backbone) -> Method:
    """Return a method with the one recommended for a use of a model in place of the name that stands for it.

    Raises:
        IncompatibleMethods: What that name was joined to does not go with that one.
    """
    chosen = parse(entry_for(backbone).uses[use].method)
    stands_in = [build_term(term).recommended is not None for term in method.terms]
    others = tuple(term for term, is_name in zip(method.terms, stands_in, strict=True) if not is_name)
    joined = chosen | replace(method, recommended=None, terms=others)
    terms = (chosen.terms if is_name else (term,) for term, is_name in zip(method.terms, stands_in, strict=True))
    return replace(joined, terms=tuple(term for some in terms for term in some))
