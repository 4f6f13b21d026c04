"""LlamaIndex's nodes as rows of an index, and rows as nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_index.core.schema import BaseNode, MetadataMode, NodeRelationship, ObjectType, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict

from chroma_eddy import Piece
from chroma_eddy.document import OWN
from chroma_eddy.rows import DOCUMENT, END, FRAMEWORKS, PIECE, START, own_metadata
from eddy_embed.errors import InvalidParameter
from eddy_embed.inputs import check_kind
from llama_index.embeddings.eddy import vector_metadata

DOCUMENT_KEYS = ("document_id", "doc_id", "ref_doc_id")
"""What LlamaIndex calls a node's document in three databases; here it is the index's own name for it."""


def piece_of(node: Any, number: int) -> Piece:
    """A node as the index stores it, with all that is needed to make it again.

    Args:
        node: With its embedding.
        number: Its place, for messages.

    Raises:
        InvalidParameter: It is no node, or has no embedding.
    """
    check_kind(f"nodes[{number}]", node, BaseNode, "one of LlamaIndex's nodes")
    if node.embedding is None:
        raise InvalidParameter(
            f"node {node.node_id!r} has no embedding; add nodes through VectorStoreIndex or IngestionPipeline, which "
            "embed them"
        )
    row = node_to_metadata_dict(node, remove_text=True)
    # LlamaIndex writes None in place of a number that is none; such a one is refused instead.
    row.update({key: value for key, value in node.metadata.items() if isinstance(value, float)})
    return Piece(
        id=node.node_id,
        document=node.ref_doc_id or node.node_id,
        text=node.get_content(metadata_mode=MetadataMode.NONE) or "",
        vector=node.embedding,
        metadata={key: value for key, value in row.items() if key not in DOCUMENT_KEYS},
        start=getattr(node, "start_char_idx", None),
        end=getattr(node, "end_char_idx", None),
    )


def node_of(id_: str, text: str, row: Mapping[str, Any]) -> BaseNode:
    """A row as a node.

    Args:
        id_: Of the row.
        text: Of the row.
        row: Its metadata.
    """
    if all(key in row for key in FRAMEWORKS):
        node = metadata_dict_to_node(dict(row), text=text)
        if vector_metadata.FINGERPRINT in node.metadata:  # the index may have refitted its vectors meanwhile
            node.metadata[vector_metadata.FINGERPRINT] = row[vector_metadata.FINGERPRINT]
        return node
    metadata = own_metadata(row)
    document = RelatedNodeInfo(node_id=str(row[DOCUMENT]), node_type=ObjectType.DOCUMENT, metadata=dict(metadata))
    place = {key: row[key] for key in OWN if key in row and key not in (START, END) and PIECE not in row}
    return TextNode(
        id_=id_,
        text=text,
        metadata={**metadata, **place},
        start_char_idx=row.get(START),
        end_char_idx=row.get(END),
        relationships={NodeRelationship.SOURCE: document},
    )
