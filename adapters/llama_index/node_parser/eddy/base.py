"""`LongDocumentNodeParser`: passage nodes embedded in the context of their whole document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from llama_index.core.bridge.pydantic import ConfigDict, Field
from llama_index.core.callbacks import CallbackManager
from llama_index.core.node_parser import NodeParser
from llama_index.core.node_parser.node_utils import default_id_func
from llama_index.core.schema import BaseNode, Document, MetadataMode, TextNode
from llama_index.core.utils import get_tqdm_iterable

from eddy_embed.errors import IncompatibleMethods, InvalidParameter
from eddy_embed.integrations import (
    PASSAGE_SIZE,
    PASSAGES,
    LongDocument,
    Part,
    PassageUnit,
    Span,
    check_kind,
    check_options,
    check_parts,
    document_identity,
    grouped_by_size,
    in_worker,
    is_random,
    passage_id,
    refuse_unknown,
    with_text,
)
from llama_index.embeddings.eddy.base import EddyEmbedding, resolve_embed_model
from llama_index.embeddings.eddy.vector_metadata import PART
from llama_index.node_parser.eddy.nodes import LEVELS, document_nodes, join_files, link_levels, without_pages

if TYPE_CHECKING:
    from typing_extensions import Self


class LongDocumentNodeParser(NodeParser):
    """Splits documents at sentence boundaries and embeds each passage in the context of its whole document.

    The nodes have an `embedding`, exact offsets (`document.text[node.start_char_idx:node.end_char_idx] == node.text`)
    and ids that are the same in every run. `EddyEmbedding`, as the next transformation of a pipeline or as the index's
    embedding model, keeps their vectors. Metadata is stored, not embedded.

    Documents without text give no node, and one warning names them.

    Args:
        embed_model: An `EddyEmbedding`, or its parameters as a dictionary; None for `Settings.embed_model`.
        passage_size: As in `Embedder.encode_long`, like `passage_unit` and `late`.
        parts: What becomes a node: "document", "passages", "sentences". With several, a node is the parent of the
            nodes of the next narrower part inside it, as `AutoMergingRetriever` and `get_leaf_nodes` need.
        include_metadata: Whether nodes get the document's metadata.
        include_prev_next_rel: Whether to link neighbouring nodes of the same part.
        callback_manager: LlamaIndex's callbacks.
        id_func: Makes the id of node `i` of a document; None for ids that are the same in every run.

    Raises:
        InvalidParameter: There is no Eddy embedding model, or another argument is wrong.
        IncompatibleMethods: `late` is set, and the method reads one token only.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    embed_model: EddyEmbedding
    passage_size: int = Field(default=PASSAGE_SIZE, gt=0)
    passage_unit: PassageUnit = "tokens"
    late: bool | None = None
    parts: tuple[Part, ...] = PASSAGES

    def __init__(
        self,
        *,
        embed_model: EddyEmbedding | Mapping[str, Any] | None = None,
        passage_size: int = PASSAGE_SIZE,
        passage_unit: PassageUnit = "tokens",
        late: bool | None = None,
        parts: Collection[Part] = PASSAGES,
        include_metadata: bool = True,
        include_prev_next_rel: bool = True,
        callback_manager: CallbackManager | None = None,
        id_func: Callable[[int, BaseNode], str] | Mapping[str, str] | None = None,
        **others: Any,
    ) -> None:
        given = {k: v for k, v in locals().items() if k not in ("self", "others", "__class__")}
        refuse_unknown("LongDocumentNodeParser", others, type(self).model_fields)
        check_options(given)
        check_parts(parts)
        for name in ("include_metadata", "include_prev_next_rel"):
            check_kind(name, given[name], bool, "True or False")
        check_kind("callback_manager", callback_manager, CallbackManager | None, "a CallbackManager, or None")
        given.update(
            embed_model=resolve_embed_model(embed_model, "passages' vectors out of a whole document need"),
            parts=tuple(part for part in LEVELS if part in parts),
            callback_manager=callback_manager or CallbackManager([]),
            id_func=_id_func(id_func),
        )
        super().__init__(**given, **others)
        if late and not self.embed_model.embedder.can_embed_spans:
            raise IncompatibleMethods(
                f"Method {self.embed_model.method!r} reads one token, so passages have no vectors in a pass over the "
                "document; use late=False to embed each passage by itself, or a method that averages."
            )

    @classmethod
    def from_defaults(cls, embed_model: EddyEmbedding | Mapping[str, Any] | None = None, **settings: Any) -> Self:
        """As the constructor, by the name that LlamaIndex's other parsers have."""
        return cls(embed_model=embed_model, **settings)

    @staticmethod
    def join_pages(pages: Sequence[Document]) -> list[Document]:
        """Join the pages of LlamaIndex's readers to one document for each file.

        Sentences may then cross page boundaries, and each node has the `page_label` of its first page and the
        `last_page_label` of its last. The document's id is the file's path.

        Args:
            pages: Documents with `page_label`; others are returned unchanged.

        Raises:
            InvalidParameter: A page does not name its file, or something is no document.
        """
        return join_files(pages)

    @classmethod
    def class_name(cls) -> str:
        """Name under which LlamaIndex serialises the class."""
        return "LongDocumentNodeParser"

    def _parse_nodes(self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any) -> list[BaseNode]:
        engine = self.embed_model.embedder
        # A pipeline does not pass on its show_progress, so the embedding model's counts as well.
        show = show_progress or self.embed_model.show_progress
        for index, node in enumerate(nodes):
            check_kind(f"documents[{index}]", node, BaseNode, "one of LlamaIndex's documents: Document(text=...)")
        usable = list(with_text(nodes, _text, lambda node, _: repr(node.node_id), "node"))
        documents: Iterable[BaseNode] = get_tqdm_iterable(usable, show, "Embedding documents")
        copies: Counter[tuple[str, str]] = Counter()
        passages: list[BaseNode] = []
        for batch in grouped_by_size(documents, lambda document: len(_text(document))):
            results = engine.encode_long(
                [_text(document) for document in batch],
                passage_size=self.passage_size,
                passage_unit=self.passage_unit,
                late=self.late,
                parts=self.parts,
                show_progress=False,
            )
            for document, result in zip(batch, results, strict=True):
                # LlamaIndex draws a random id for a document without one, another in every run.
                own_id = None if is_random(document.node_id) else document.node_id
                identity = document_identity(own_id, document.metadata)
                passages.extend(self._nodes(document, result, identity, copies[identity, result.text]))
                copies[identity, result.text] += 1
        return passages

    async def _aparse_nodes(
        self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any
    ) -> list[BaseNode]:
        return await in_worker(partial(self._parse_nodes, nodes, show_progress=show_progress, **kwargs))

    def _nodes(self, document: BaseNode, result: LongDocument, identity: str, copy: int) -> list[TextNode]:
        fingerprint = self.embed_model.fingerprint
        late = self.embed_model.embedder.reads_late if self.late is None else self.late

        def own_id(number: int, part: Part, span: Span) -> str:
            if self.id_func is not default_id_func:
                return str(self.id_func(number, document))
            return passage_id(identity, result.text, copy, span.start, span.end, fingerprint, late, part)

        return document_nodes(document, result, self.parts, fingerprint, own_id)

    def _postprocess_parsed_nodes(self, nodes: list[BaseNode], parent_doc_map: dict[str, Document]) -> list[BaseNode]:
        # The base class searches for each node's text in the document and finds the first of several equal places.
        spans = [(node.start_char_idx, node.end_char_idx) for node in nodes if isinstance(node, TextNode)]
        parents = {
            id_: parent.model_copy(update={"metadata": without_pages(parent.metadata)})
            for id_, parent in parent_doc_map.items()
        }
        for part in self.parts:  # it links neighbours, which must be of the same level
            super()._postprocess_parsed_nodes([node for node in nodes if node.metadata[PART] == part], parents)
        for node, (start, end) in zip((n for n in nodes if isinstance(n, TextNode)), spans, strict=True):
            node.start_char_idx, node.end_char_idx = start, end
        link_levels(nodes)
        return nodes

    # Without these, LlamaIndex would drop an embedding model that does not pickle, also from this object.
    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in set(type(self).model_fields) - {"callback_manager"}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Bypass the constructor, which would load the model: a process that only passes the parser on needs none.
        super().__init__(**state)


def _id_func(given: Callable[[int, BaseNode], str] | Mapping[str, str] | None) -> Callable[[int, BaseNode], str]:
    if isinstance(given, Mapping):
        # From to_dict(), which stores only the function's name.
        if given.get("id_func_name") != default_id_func.__name__:
            raise InvalidParameter(f"id_func {given.get('id_func_name')!r} was saved by name; give the function again.")
        return default_id_func
    check_kind("id_func", given, Callable | None, "a function of a number and a document, or None")
    return given or default_id_func


def _text(document: BaseNode) -> str:
    return document.get_content(metadata_mode=MetadataMode.NONE)
