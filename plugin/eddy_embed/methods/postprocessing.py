"""Post-processing by name: what vectors have in common, taken out."""

from __future__ import annotations

from dataclasses import replace

from eddy_embed.methods.method import Method
from eddy_embed.methods.registry import build, build_term, register
from eddy_embed.parts.postprocess import Post
from eddy_embed.parts.readout import EmbedFilter


@register
def filter(drop: int = 16) -> Method:
    """Vectors without the directions in which the model's token embeddings vary most; nothing has to be fitted.

    After EmbedFilter (arXiv 2606.07502). It suits vectors close to the token embeddings, as in
    `plain:exit=0+sif+filter`.

    Args:
        drop: Directions taken out.

    Raises:
        InvalidParameter: `drop` is below 1.
    """
    return build(filter, {"drop": drop}, filter=EmbedFilter(drop))


@register
def centre() -> Method:
    """Vectors minus the library's mean."""
    return build(centre, {}, post=Post("centre"))


@register
def standardise() -> Method:
    """Each dimension minus its mean, divided by its standard deviation; of two layers in one vector, each by itself.

    A few dimensions of a language model's states vary far more than all others, and decide cosines alone (Timkey and
    van Schijndel 2021).
    """
    return build(standardise, {}, post=Post("standardise"))


@register
def abtt(k: int = 1) -> Method:
    """Vectors minus the library's mean and top principal components (Mu and Viswanath 2018).

    Args:
        k: Components removed.
    """
    return build(abtt, {"k": k}, post=Post("abtt", components=k))


@register
def whiten(dims: int | None = None, power: float = 1.0) -> Method:
    """Vectors whitened on the library, with shrinkage (Su et al. 2021; Ledoit and Wolf 2004).

    Args:
        dims: Dimensions kept, None for all.
        power: Of the standard deviations by which principal components are divided, above 0 and at most 1. 1 gives all
            the same spread, as published; less keeps some of the order of their importance.

    Raises:
        InvalidParameter: A value is outside its range.
    """
    return build(whiten, {"dims": dims, "power": power}, post=Post("whiten", dims=dims, power=power))


@register
def truncate(dims: int | None = None) -> Method:
    """The first dimensions of vectors, after all other post-processing; nothing has to be fitted.

    As sentence-transformers' `truncate_dim`. It suits models and whitened vectors whose first dimensions hold the most
    information; a raw language model's do not.

    Args:
        dims: Dimensions kept, None for all.
    """
    return build(truncate, {"dims": dims}, post=Post("truncate", keep=dims))


def post_method(post: Post) -> Method:
    """Return the method that asks for this post-processing."""
    cut = truncate(post.keep)
    if not post.learns:
        return cut
    if post.kind == "whiten":
        learned = whiten(post.dims, post.power)
    elif post.kind == "abtt":
        learned = abtt(post.components)
    else:
        learned = centre() if post.kind == "centre" else standardise()
    return learned if post.keep is None else learned | cut


def with_post(method: Method, post: Post | None) -> Method:
    """Return the same method with other post-processing, or with none."""
    terms = tuple(term for term in method.terms if build_term(term).post is None)
    if post is not None and method.terms:
        terms += post_method(post).terms
    return replace(method, post=post, terms=terms)
