"""solely reservations: what is being sent, and what is quiet."""

from __future__ import annotations

from collections.abc import Iterator

import click

from ..client import Client
from .entries import Noun, add_clear, not_found, page_of
from .options import Place, at_store, in_form, paged
from .output import Form, Row

PAGE = 100  # in one look, which also reads when each was last sent
COLUMNS = ("key", "reason", "left", "suppressed", "last_sent", "holder")


@click.group()
def command() -> None:
    """Reservations: what is being sent, what is quiet, and how much was suppressed."""


@command.command("list")
@paged
@in_form
@at_store
def _list(place: Place, form: Form, prefix: str, after: str, limit: int, everything: bool) -> None:
    """Those whose key begins with PREFIX, in the order of keys, a page at a time."""
    with place.client() as once:
        form.rows(page_of(_active(once, prefix, after), limit, everything), COLUMNS, ("fence", "sent"))


@command.command()
@click.argument("key")
@in_form
@at_store
def show(place: Place, form: Form, key: str) -> None:
    """All that is known of one; exits with 3 if there is none."""
    with place.client() as once:
        first = next((row for row in _active(once, key, "") if row["key"] == key), None)
    if first is None:
        not_found(f"reservation {key!r}")
    form.one(first)


def _active(once: Client, prefix: str, after: str) -> Iterator[Row]:
    while page := once.reservations(prefix, after=after, limit=PAGE):
        yield from (info._asdict() for info in page)
        after = page[-1].key


add_clear(
    command,
    Noun("reservation", COLUMNS),
    "Ends the hold or the quiet window, so that the next caller may send; limits still count what was sent.",
)
