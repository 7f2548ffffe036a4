"""Benchmarks: what a call costs, compared with what one would otherwise use. Run `scripts/bench`."""
