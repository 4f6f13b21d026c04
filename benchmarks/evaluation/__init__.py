"""Methods scored on tasks: what benchmarks measure with."""
