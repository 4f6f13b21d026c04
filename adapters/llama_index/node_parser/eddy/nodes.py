"""Convert an embedded document to LlamaIndex's nodes of one or several levels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llama_index.core.node_parser.node_utils import build_nodes_from_splits
from llama_index.core.schema import BaseNode, Document, MetadataMode, NodeRelationship, RelatedNodeInfo, TextNode

from eddy_embed.integrations import (
    FINGERPRINT,
    HEADINGS,
    LAST_LABEL,
    N_TOKENS,
    N_TRUNCATED,
    N_WINDOWS,
    PAGES,
    LongDocument,
    Pages,
    Part,
    Passage,
    Span,
    check_kind,
    heading_path,
    joined_pages,
    pages_by_file,
)
from llama_index.embeddings.eddy import vector_metadata

LEVELS: tuple[Part, ...] = ("document", "passages", "sentences")
"""From the widest to the narrowest."""


def document_nodes(
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
                bare = {"metadata": without_pages(node.source_node.metadata)}
                node.relationships[NodeRelationship.SOURCE] = node.source_node.model_copy(update=bare)
            hidden = (*vector_metadata.KEYS, vector_metadata.PART, LAST_LABEL)
            # A language model gets the headings; the embedding model has read them in the text.
            own_hidden = [*hidden, HEADINGS]
            node.excluded_embed_metadata_keys = [*source.excluded_embed_metadata_keys, *own_hidden]
            node.excluded_llm_metadata_keys = [*source.excluded_llm_metadata_keys, *hidden]
            if above:
                while above[holder][0].end < span.end:
                    holder += 1
                node.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id=above[holder][1].node_id)
        result_nodes += nodes
        above = list(zip(spans, nodes, strict=True))
    return result_nodes


def join_files(pages: Sequence[Document]) -> list[Document]:
    """Join the pages of each file to a document whose metadata say where each page begins."""
    check_kind("pages", pages, Sequence, "a list of LlamaIndex's documents")
    for index, page in enumerate(pages):
        check_kind(f"pages[{index}]", page, Document, "one of LlamaIndex's documents: Document(text=...)")
    documents: list[Document] = []
    for file, numbers in pages_by_file([page.metadata for page in pages]):
        own = [pages[number] for number in numbers]
        if not file:
            documents += own
            continue
        text, metadata = joined_pages(
            [page.get_content(MetadataMode.NONE) for page in own], [page.metadata for page in own]
        )
        hidden = {
            name: [*dict.fromkeys(key for page in own for key in getattr(page, name)), PAGES]
            for name in ("excluded_embed_metadata_keys", "excluded_llm_metadata_keys")
        }
        documents.append(Document(text=text, id_=file, metadata=metadata, **hidden))
    return documents


def without_pages(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A document's metadata without the list of its pages, which every node would repeat."""
    return {key: value for key, value in metadata.items() if key != PAGES}


def link_levels(nodes: Sequence[BaseNode]) -> None:
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
        vector_metadata.TEXT_DIGEST: vector_metadata.text_digest(text),
        N_TOKENS: span.n_tokens,
        N_WINDOWS: result.n_windows,
        N_TRUNCATED: result.n_truncated,
        vector_metadata.PART: part,
    }
