"""Rows of an index: metadata, and documents read back."""
