"""Search: nearest vectors, fusion with BM25, sentence highlights."""
