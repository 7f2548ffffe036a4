"""solely locks: who holds what."""

from __future__ import annotations

import click

from .entries import Noun, add_clear, add_list, add_show

NOUN = Noun("lock", ("key", "state", "left", "fence", "waiters", "holder"), ("since", "attempts", "refused"))


@click.group()
def command() -> None:
    """Locks: who holds them, and for how long."""


add_list(command, NOUN)
add_show(command, NOUN)
add_clear(command, NOUN, "Takes the lock from its holder, who learns of it at the next renewal.")
