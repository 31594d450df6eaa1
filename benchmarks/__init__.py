"""One table of ratios to named rivals, from one run: `python -m benchmarks`."""
