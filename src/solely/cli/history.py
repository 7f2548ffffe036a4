"""solely history: what happened to a key through a running service."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from .help import Command
from .options import in_form
from .output import Form, talk
from .service_options import at_service

if TYPE_CHECKING:
    from ..http import Client

KINDS = ("lock", "claim", "reservation", "mark", "limit", "item", "tick", "watermark", "breaker")


@click.command(
    cls=Command,
    examples=[
        "solely history deploy:web",
        "solely history deploy:web --kind lock --json",
        "solely history order-1 --limit 20",
    ],
)
@click.argument("key")
@click.option("--kind", type=click.Choice(KINDS), help="Of this kind of key only.  [default: of all]")
@click.option("--after", default="", metavar="POSITION", help="Continue after this position: go further back.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Number of events.")
@in_form
@at_service
def history(client: Client, form: Form, key: str, kind: str | None, after: str, limit: int) -> None:
    """What happened to KEY, newest first: acquired, renewed, refused, released, published, cleared, by whom and when.

    It has what went through the service, of all its workers. The key of a queue's item is QUEUE/ID with the queue's
    name percent-encoded, as `solely history` prints it.
    """
    page = client.get("/v1/history", dict[str, Any], key=key, kind=kind or "", after=after, limit=limit)
    if form.name == "json":
        form.one(page)
        return
    lines = [each | {"at": _moment(each["at"]), "last": _moment(each["last"])} for each in page["timeline"]]
    form.rows(lines, ("last", "event", "who", "text"), ("at", "times", "fence"))
    if page["problem"]:
        talk(f"the history is not kept at the moment: {page['problem']}")
    if page["next"]:
        talk(f"there may be more: --after {page['next']!r}")


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(round(at, 3), UTC)
