"""Texts before the model: sentences, tokens, sequences; no torch."""
