"""What adapters share: arguments, loaded embedders, document ids, page numbers."""
