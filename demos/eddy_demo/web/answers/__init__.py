"""What the pages show of the library: answers, documents, explanations."""
