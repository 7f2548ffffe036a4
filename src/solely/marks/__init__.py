"""Marks (deduplication): the first caller marks a key, every later caller sees the mark."""
