"""From texts to vectors: validation, planning, batching, the forward pass, finishing."""
