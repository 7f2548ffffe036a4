"""Tests of the prober. `sites` has servers that are probed: they count, fail and hang as the test says."""
