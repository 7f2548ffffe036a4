"""Marks (deduplication): the first caller marks the key, every later one sees it."""
