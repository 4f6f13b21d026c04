"""From texts to vectors: validation, planning, the forward pass, finishing."""
