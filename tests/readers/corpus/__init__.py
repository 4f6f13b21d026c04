"""Small files, each of a kind, with the text that a reader sees."""
