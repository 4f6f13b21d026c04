"""The same products and norms in less time."""
