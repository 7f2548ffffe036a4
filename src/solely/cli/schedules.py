"""solely schedules: last and next runs, and removing what is kept of a schedule that runs no more."""

from __future__ import annotations

from collections.abc import Iterator

import click

from ..audit import DONE, NOTHING
from ..client import Client
from .audit import CommandAudit
from .entries import not_found, page_of
from .help import Group
from .options import StoreOptions, at_store, by_reason, confirm, in_form, paged
from .output import Form, Row, talk

PAGE = 100  # schedules per request: each costs a second read
COLUMNS = ("key", "when", "state", "last", "outcome", "next")
MORE = ("by", "late", "took", "missed", "holder", "running", "left", "fence")


@click.group(cls=Group, default="list")
def schedules() -> None:
    """Schedules: when each ran last, how that ended, and when it is due next."""


@schedules.command("list", examples=["solely schedules list", "solely schedules list -o wide"])
@paged
@in_form
@at_store
def _list(options: StoreOptions, form: Form, prefix: str, after: str, limit: int, everything: bool) -> None:
    """Lists those whose name begins with PREFIX, in the order of names, a page at a time."""
    with options.client() as once:
        form.rows(page_of(_known(once, prefix, after), limit, everything), COLUMNS, MORE)


def _known(once: Client, prefix: str, after: str) -> Iterator[Row]:
    while page := once.schedules(prefix, after=after, limit=PAGE):
        yield from (info._asdict() for info in page)
        after = page[-1].key


@schedules.command(examples=["solely schedules show nightly"])
@click.argument("name")
@in_form
@at_store
def show(options: StoreOptions, form: Form, name: str) -> None:
    """Shows all facts of one; exits with 3 if there is none."""
    with options.client() as once:
        info = once.schedule_info(name)
    if info is None:
        not_found(f"schedule {name!r}")
    form.one(info._asdict())


@schedules.command(examples=['solely schedules forget nightly --reason "the job was removed" --yes'])
@click.argument("name")
@by_reason
@in_form
@at_store
def forget(options: StoreOptions, form: Form, name: str, reason: str, dry_run: bool, yes: bool) -> None:
    """Removes what is kept of a schedule that runs no more. One that still runs begins anew with its next tick. Exits
    with 3 if there is none."""
    store = options.store()
    with options.client(store=store) as once:
        if once.schedule_info(name) is None:
            not_found(f"schedule {name!r}")
        if dry_run:
            talk(f"would forget schedule {name!r}")
            return
        confirm(f"Forget schedule {name!r}", yes)
        with CommandAudit(options.url, store).acting("schedules.forget", name, reason) as act:
            act.outcome = DONE if once.forget_schedule(name, reason=reason) else NOTHING
    talk(f"forgot schedule {name!r}")
    form.done({"forgotten": name})
