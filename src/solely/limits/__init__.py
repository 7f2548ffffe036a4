"""Limits: at most so many in any window of time, counted over all processes."""
