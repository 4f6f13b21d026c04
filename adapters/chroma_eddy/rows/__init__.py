"""Rows of an index: metadata, documents read back, post-processing and BM25."""
