"""Forges: where repositories and merge requests are. One folder each; `forge` is what all of them offer."""
