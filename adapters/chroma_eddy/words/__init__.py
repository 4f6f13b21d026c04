"""The words of an index: how texts are cut into terms, and BM25 over them, kept beside the collections."""
