"""List, show and clear entries of one kind: the parts of which `nouns.py` builds its commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NoReturn

import click

from ..audit import DONE, NOTHING
from ..errors import StoreError
from ..holder import describe, since_of
from ..model import Entry, State
from ..ops import Clear, Op, Read, Reply
from ..rules import stored_key
from ..stores import Store
from .audit import CommandAudit
from .exits import Exit, leave
from .options import StoreOptions, at_store, by_reason, confirm, in_form, paged
from .output import Form, Row, talk
from .progress import progress

PAGE = 1_000  # entries per request: at most 256 MiB if each had the largest value, usually below 1 MiB
Facts = dict[str, Any]


def facts_of(entry: Entry) -> Facts:
    """What an operator sees of any entry; without its owner's secret."""
    return {
        "key": entry.name,
        "state": str(entry.state),
        "left": entry.left,
        "fence": entry.fence,
        "waiters": entry.waiters,
        "holder": describe(entry.info),
        "since": since_of(entry.info),
        "attempts": entry.attempts,
        "refused": entry.refused,
    }


@dataclass(frozen=True)
class Noun:
    """A kind of entry: the columns of a table, the additional ones of a wide table, and the facts of an entry."""

    kind: str
    columns: tuple[str, ...]
    more: tuple[str, ...] = ()
    facts: Callable[[Entry], Facts] = facts_of
    example: str = "nightly"  # a key, as examples in the help have it


def live(store: Store, kind: str, prefix: str = "", after: str = "", page: int = PAGE) -> Iterator[Entry]:
    """The entries of this kind that are not free, in the order of their keys."""
    last = f"{kind}/{after}" if after else ""
    while True:
        entries = store.scan(f"{kind}/{prefix}", last, page)
        yield from (entry for entry in entries if entry.state is not State.FREE)
        if len(entries) < page:
            return
        last = entries[-1].key


def perform(store: Store, op: Op) -> Reply:
    """The reply to one op; raises the StoreError of that op."""
    (reply,) = store.perform([op])
    if isinstance(reply, StoreError):
        raise reply
    return reply


def read(store: Store, kind: str, key: str) -> Entry:
    """The entry, which may be free."""
    entry = perform(store, Read(stored_key(kind, key)))
    assert isinstance(entry, Entry)
    return entry


def page_of(rows: Iterator[Row], limit: int, everything: bool) -> list[Row]:
    """At most `limit` rows, or all; prints how to get the next page if there are more."""
    if everything:
        return _all_of(rows)
    page: list[Row] = []
    for row in rows:
        if len(page) == limit:
            talk(f"there are more: --after {page[-1]['key']!r}, or --all")
            break
        page.append(row)
    return page


def _all_of(rows: Iterator[Row]) -> list[Row]:
    found: list[Row] = []
    with progress() as line:
        for row in rows:
            found.append(row)
            line.show(f"{len(found)} read, up to {row['key']!r:.60}")
    return found


def add_list(group: click.Group, noun: Noun) -> None:
    """`… list [PREFIX]`"""

    @group.command(
        "list", examples=[f"solely {group.name} list", f"solely {group.name} list {noun.example[:3]} --all --json"]
    )
    @paged
    @in_form
    @at_store
    def command(options: StoreOptions, form: Form, prefix: str, after: str, limit: int, everything: bool) -> None:
        """Lists those whose key begins with PREFIX, in the order of keys, a page at a time. The default command."""
        with closing(options.store()) as store:
            size = PAGE if everything else min(PAGE, limit + 1)
            rows = map(noun.facts, live(store, noun.kind, prefix, after, size))
            form.rows(page_of(rows, limit, everything), noun.columns, noun.more)


def add_show(group: click.Group, noun: Noun) -> None:
    """`… show KEY`"""

    @group.command("show", examples=[f"solely {group.name} show {noun.example}"])
    @click.argument("key")
    @in_form
    @at_store
    def command(options: StoreOptions, form: Form, key: str) -> None:
        """Shows all facts of one; exits with 3 if there is none."""
        with closing(options.store()) as store:
            entry = read(store, noun.kind, key)
        if entry.state is State.FREE:
            not_found(f"{noun.kind} {key!r}")
        form.one(noun.facts(entry))


def add_clear(group: click.Group, noun: Noun, meaning: str) -> None:
    """`… clear KEY…`"""

    @group.command(
        "clear",
        help=meaning + " Exits with 3 if there is none, 5 if another caller took it meanwhile.",
        examples=[f'solely {group.name} clear {noun.example} --reason "its host is gone" --yes'],
    )
    @click.argument("keys", nargs=-1, required=True, metavar="KEY…")
    @by_reason
    @in_form
    @at_store
    def command(
        options: StoreOptions, form: Form, keys: tuple[str, ...], reason: str, dry_run: bool, yes: bool
    ) -> None:
        with closing(options.store()) as store:
            audit = CommandAudit(options.url, store)
            found = [read(store, noun.kind, key) for key in keys]
            for entry in found:
                if entry.state is State.FREE:
                    not_found(f"{noun.kind} {entry.name!r}")
            for entry in found:
                what = f"{noun.kind} {entry.name!r} ({summary(entry)})"
                if dry_run:
                    talk(f"would clear {what}")
                    continue
                confirm(f"Clear {what}", yes)
                with audit.acting(f"{noun.kind}s.clear", entry.name, reason) as act:
                    cleared = perform(store, Clear(entry.key, entry.fence, reason))
                    act.outcome = DONE if cleared else NOTHING
                if not cleared:
                    talk(f"not cleared: {what}: it has changed since it was read")
                    leave(Exit.BUSY)
                talk(f"cleared {what}")
        form.done({"cleared": [] if dry_run else [entry.name for entry in found]})


def summary(entry: Entry) -> str:
    """State, fence and holder, for a message."""
    who = describe(entry.info)
    return ", ".join(filter(None, [str(entry.state), f"fence {entry.fence}", f"by {who}" if who else ""]))


def not_found(what: str) -> NoReturn:
    """Reports it and exits with 3."""
    talk(f"solely: there is no {what}")
    leave(Exit.NOT_FOUND)
