"""Builds the documentation site: `scripts/docs`.

`staging` copies docs/ and the pages of the top folder to build/docs and adjusts their links; `generated` writes the
pages that come from the code; zensical makes build/site of them; `links` checks every link and anchor of the result.
"""
