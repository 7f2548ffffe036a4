"""Benchmarks: what a call costs against the peer that one would otherwise write. Run `scripts/bench`."""
