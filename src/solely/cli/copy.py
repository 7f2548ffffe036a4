"""solely copy SOURCE TARGET: copies entries from one store to another."""

from __future__ import annotations

import os

import click

from ..errors import StoreError
from .exits import Exit, leave
from .global_options import global_url
from .help import Command
from .options import in_form
from .output import Form, talk


@click.command(
    cls=Command,
    examples=[
        "solely copy sqlite:////var/lib/solely.db redis://localhost --dry-run",
        "solely --url postgresql://db/app copy redis://localhost --prefix mark/",
    ],
)
@click.argument("source", metavar="SOURCE_URL")
@click.argument("target", metavar="[TARGET_URL]", required=False)
@click.option("--prefix", "prefixes", multiple=True, metavar="PREFIX", help="Only such keys, e.g. mark/ (repeatable).")
@click.option("--dry-run", is_flag=True, help="Write nothing; report what would be done.")
@in_form
def copy(form: Form, source: str, target: str | None, prefixes: tuple[str, ...], dry_run: bool) -> None:
    """Copies marks, results, watermarks and queue items from one store into another.

    The target is that of --url or SOLELY_URL by default.

    It replaces nothing at the target by something older, and can be stopped and run again. Exits with 1 if entries
    failed, 75 if a store is unreachable.
    """
    from ..copying import copy as copy_entries
    from ..copying.__main__ import Bar

    into = target or global_url() or os.environ.get("SOLELY_URL")
    if not into:
        raise click.UsageError("Copy into which store? Give a TARGET_URL, --url, or SOLELY_URL.")
    bar = Bar()
    try:
        report = copy_entries(source, into, progress=bar, prefixes=prefixes or ("",), dry_run=dry_run)
    except (KeyboardInterrupt, StoreError):
        bar.end()
        talk(f"stopped after {bar.last}; run it again to continue")
        raise
    else:
        bar.end()
    if form.name == "json":
        left, failed = ([each._asdict() for each in part] for part in (report.left_behind, report.failures))
        form.one(report.progress._asdict() | {"left_behind_entries": left, "failures": failed, "dry_run": dry_run})
    else:
        click.echo(str(report))
    if not report.complete:
        talk("run it again: entries that were copied are only counted")
        leave(Exit.ERROR)
