"""The same products in less time."""
