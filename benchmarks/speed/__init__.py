"""Speed and memory as ratios within one run: `python benchmarks/bench.py` runs all of it."""
