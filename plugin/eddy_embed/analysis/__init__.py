"""What to ask of a method and a model: diagnosis, evaluation, layers, comparison of texts."""
