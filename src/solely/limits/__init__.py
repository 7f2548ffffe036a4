"""Limits: at most `limit` hits in any window of time, counted over all processes."""
