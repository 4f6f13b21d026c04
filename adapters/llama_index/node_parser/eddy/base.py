"""`LongDocumentNodeParser`: passage nodes embedded in the context of their whole document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from llama_index.core.bridge.pydantic import ConfigDict, Field
from llama_index.core.callbacks import CallbackManager
from llama_index.core.node_parser import NodeParser
from llama_index.core.node_parser.node_utils import build_nodes_from_splits, default_id_func
from llama_index.core.schema import BaseNode, Document, MetadataMode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.utils import get_tqdm_iterable

from eddy_embed.encoding.document import LongDocument, Part, Passage, PassageUnit, Span, heading_path
from eddy_embed.encoding.validation import PASSAGE_SIZE, PASSAGES, check_parts, refuse_unknown
from eddy_embed.errors import IncompatibleMethods, InvalidParameter
from eddy_embed.integrations.documents import (
    FINGERPRINT,
    HEADINGS,
    LAST_LABEL,
    N_TOKENS,
    N_TRUNCATED,
    N_WINDOWS,
    PAGES,
    Pages,
    document_identity,
    grouped_by_size,
    is_random,
    joined_pages,
    pages_by_file,
    passage_id,
    passage_metadata,
    with_text,
)
from eddy_embed.integrations.shared import in_worker
from llama_index.embeddings.eddy.base import KEYS, PART, TEXT_DIGEST, EddyEmbedding, resolve_embed_model, text_digest

if TYPE_CHECKING:
    from typing_extensions import Self

LEVELS: tuple[Part, ...] = ("document", "passages", "sentences")
"""From the widest to the narrowest."""


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
        headings: As in `Embedder.encode_long`; False for texts whose lines of code or labels look like headings.
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
    headings: bool = True

    def __init__(
        self,
        *,
        embed_model: EddyEmbedding | Mapping[str, Any] | None = None,
        passage_size: int = PASSAGE_SIZE,
        passage_unit: PassageUnit = "tokens",
        late: bool | None = None,
        parts: Collection[Part] = PASSAGES,
        headings: bool = True,
        include_metadata: bool = True,
        include_prev_next_rel: bool = True,
        callback_manager: CallbackManager | None = None,
        id_func: Callable[[int, BaseNode], str] | Mapping[str, str] | None = None,
        **others: Any,
    ) -> None:
        refuse_unknown("LongDocumentNodeParser", others, type(self).model_fields)
        check_parts(parts)
        fields: dict[str, Any] = {
            "embed_model": resolve_embed_model(embed_model, "passages' vectors out of a whole document need"),
            "passage_size": passage_size,
            "passage_unit": passage_unit,
            "late": late,
            "parts": tuple(part for part in LEVELS if part in parts),
            "headings": headings,
            "include_metadata": include_metadata,
            "include_prev_next_rel": include_prev_next_rel,
            "callback_manager": callback_manager or CallbackManager([]),
            "id_func": _id_func(id_func),
        }
        super().__init__(**fields, **others)
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
            InvalidParameter: A page does not name its file.
        """
        return _join_files(pages)

    @classmethod
    def class_name(cls) -> str:
        """Name under which LlamaIndex serialises the class."""
        return "LongDocumentNodeParser"

    def _parse_nodes(self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any) -> list[BaseNode]:
        engine = self.embed_model.embedder
        # A pipeline does not pass on its show_progress, so the embedding model's counts as well.
        show = show_progress or self.embed_model.show_progress
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
                headings=self.headings,
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
            named = part if self.headings else f"{part} without headings"
            return passage_id(identity, result.text, copy, span.start, span.end, fingerprint, late, named)

        return _document_nodes(document, result, self.parts, fingerprint, own_id)

    def _postprocess_parsed_nodes(self, nodes: list[BaseNode], parent_doc_map: dict[str, Document]) -> list[BaseNode]:
        # The base class searches for each node's text in the document and finds the first of several equal places.
        spans = [(node.start_char_idx, node.end_char_idx) for node in nodes if isinstance(node, TextNode)]
        parents = {
            id_: parent.model_copy(update={"metadata": passage_metadata(parent.metadata)})
            for id_, parent in parent_doc_map.items()
        }
        for part in self.parts:  # it links neighbours, which must be of the same level
            super()._postprocess_parsed_nodes([node for node in nodes if node.metadata[PART] == part], parents)
        for node, (start, end) in zip((n for n in nodes if isinstance(n, TextNode)), spans, strict=True):
            node.start_char_idx, node.end_char_idx = start, end
        _link_levels(nodes)
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
    return given or default_id_func


def _text(document: BaseNode) -> str:
    return document.get_content(metadata_mode=MetadataMode.NONE)


def _document_nodes(
    source: BaseNode,
    result: LongDocument,
    parts: Sequence[Part],
    fingerprint: str,
    id_func: Callable[[int, Part, Span], str],
) -> list[TextNode]:
    """Make the nodes of a document, level by level; the parent of a node is the node of the level above around it.

    `source` is the document, or a piece of one with its start index.
    """
    offset = (getattr(source, "start_char_idx", None) or 0) if source.source_node else 0
    pages = Pages.of(source.metadata)
    result_nodes: list[TextNode] = []
    above: list[tuple[Span, TextNode]] = []
    for part in (part for part in LEVELS if part in parts):
        spans = _spans(result, part)
        ids = [id_func(len(result_nodes) + at, part, span) for at, span in enumerate(spans)]
        nodes = build_nodes_from_splits(
            [result.text[span.start : span.end] for span in spans], source, id_func=lambda i, _, ids=ids: ids[i]
        )
        holder = 0
        for node, span in zip(nodes, spans, strict=True):
            node.embedding = span.vector.tolist()
            node.start_char_idx, node.end_char_idx = offset + span.start, offset + span.end
            node.metadata = _metadata(node.text, part, span, result, fingerprint) | pages.labels(span.start, span.end)
            if pages.starts and node.source_node is not None:
                bare = {"metadata": passage_metadata(node.source_node.metadata)}
                node.relationships[NodeRelationship.SOURCE] = node.source_node.model_copy(update=bare)
            hidden = (*KEYS, PART, LAST_LABEL)
            # A language model gets the headings; the embedding model has read them in the text.
            node.excluded_embed_metadata_keys = [*source.excluded_embed_metadata_keys, *hidden, HEADINGS]
            node.excluded_llm_metadata_keys = [*source.excluded_llm_metadata_keys, *hidden]
            if above:
                while above[holder][0].end < span.end:
                    holder += 1
                node.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id=above[holder][1].node_id)
        result_nodes += nodes
        above = list(zip(spans, nodes, strict=True))
    return result_nodes


def _join_files(pages: Sequence[Document]) -> list[Document]:
    """Join the pages of each file to a document whose metadata say where each page begins."""
    documents: list[Document] = []
    for file, numbers in pages_by_file([page.metadata for page in pages]):
        parts = [pages[number] for number in numbers]
        if not file:
            documents += parts
            continue
        text, metadata = joined_pages(
            [page.get_content(MetadataMode.NONE) for page in parts], [page.metadata for page in parts]
        )
        hidden = {
            name: [*dict.fromkeys(key for page in parts for key in getattr(page, name)), PAGES]
            for name in ("excluded_embed_metadata_keys", "excluded_llm_metadata_keys")
        }
        documents.append(Document(text=text, id_=file, metadata=metadata, **hidden))
    return documents


def _link_levels(nodes: Sequence[BaseNode]) -> None:
    """Link parents and children. Call it last: a relation copies the other node's metadata and hash."""
    by_id = {node.node_id: node for node in nodes}
    parents: dict[str, RelatedNodeInfo] = {}
    children: dict[str, list[RelatedNodeInfo]] = {}
    for node in nodes:
        if node.parent_node is None:
            continue
        parent = node.parent_node.node_id
        if parent not in parents:
            parents[parent] = by_id[parent].as_related_node_info()
        node.relationships[NodeRelationship.PARENT] = parents[parent]
        children.setdefault(parent, []).append(node.as_related_node_info())
    for parent, held in children.items():
        by_id[parent].relationships[NodeRelationship.CHILD] = held


def _spans(result: LongDocument, part: Part) -> Sequence[Span]:
    if part == "document":
        return [Span(0, len(result.text), result.n_tokens - result.n_truncated, result.vector)]
    return result.passages if part == "passages" else result.sentences


def _metadata(text: str, part: Part, span: Span, result: LongDocument, fingerprint: str) -> dict[str, Any]:
    headings = span.headings if isinstance(span, Passage) else ()
    return {
        **({HEADINGS: heading_path(headings)} if headings else {}),
        FINGERPRINT: fingerprint,
        TEXT_DIGEST: text_digest(text),
        N_TOKENS: span.n_tokens,
        N_WINDOWS: result.n_windows,
        N_TRUNCATED: result.n_truncated,
        PART: part,
    }
