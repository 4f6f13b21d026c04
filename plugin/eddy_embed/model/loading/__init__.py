"""Models from the hub, from folders of sentence-transformers, and with PEFT adapters."""
