"""Weights that stay as a file quantised them, and the modules that compute with them."""
