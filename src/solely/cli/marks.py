"""solely marks: what has been seen."""

from __future__ import annotations

import click

from .entries import Noun, add_clear, add_list, add_show

NOUN = Noun("mark", ("key", "state", "left"), ("fence",))


@click.group()
def command() -> None:
    """Marks: what has been seen, and until when that is remembered."""


add_list(command, NOUN)
add_show(command, NOUN)
add_clear(command, NOUN, "Forgets the mark, so that the next caller is first again.")
