"""Texts before the model: sentences, tokens, sequences; numpy only."""
