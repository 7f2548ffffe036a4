"""solely limits: list the limits that refuse calls, and count a call."""

from __future__ import annotations

from collections.abc import Iterator

import click

from ..client import Client
from .entries import page_of
from .help import Group
from .options import DURATION, StoreOptions, at_store, in_form, paged
from .output import Form, Row

PAGE = 100  # limits per request


@click.group(cls=Group, default="list")
def limits() -> None:
    """Limits: which of them refuse calls now, and for how long."""


@limits.command("list", examples=["solely limits list", "solely limits list mail --json"])
@paged
@in_form
@at_store
def _list(options: StoreOptions, form: Form, prefix: str, after: str, limit: int, everything: bool) -> None:
    """Lists those whose key begins with PREFIX and that refuse calls now, in the order of keys, a page at a time."""
    with options.client() as once:
        form.rows(page_of(_reached(once, prefix, after), limit, everything), ("key", "limit", "per", "hits", "left"))


def _reached(once: Client, prefix: str, after: str) -> Iterator[Row]:
    while page := once.limits(prefix, after=after, limit=PAGE):
        yield from (info._asdict() for info in page)
        after = page[-1].key


@limits.command(examples=["solely limits hit mail:alice --limit 100 --per 1h"])
@click.argument("key")
@click.option("--limit", type=click.IntRange(1), required=True, help="The most calls in any window.")
@click.option("--per", type=DURATION, required=True, help="The length of the window.")
@in_form
@at_store
def hit(options: StoreOptions, form: Form, key: str, limit: int, per: float) -> None:
    """Counts one call if the limit allows it, and prints the calls in the window. Exits with 5 if it does not, and says
    when the next one is allowed."""
    with options.client() as once:
        form.value("hits", once.limit(key, limit=limit, per=per).or_raise().hits)
