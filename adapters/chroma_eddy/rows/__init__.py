"""Rows of the collections: their metadata, documents read back from them, and what is fitted to them."""
