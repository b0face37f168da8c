"""The commands of `python -m benchmarks`."""
