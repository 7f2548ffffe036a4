"""solely copy SOURCE TARGET: what is remembered in one store is remembered in another."""

from __future__ import annotations

import click

from .exits import Exit, leave
from .options import in_form
from .output import Form, talk


@click.command()
@click.argument("source", metavar="SOURCE_URL")
@click.argument("target", metavar="TARGET_URL", envvar="SOLELY_URL")
@click.option("--prefix", "prefixes", multiple=True, metavar="PREFIX", help="Only such keys, e.g. mark/ (repeatable).")
@click.option("--dry-run", is_flag=True, help="Write nothing; report what would be done.")
@in_form
def command(form: Form, source: str, target: str, prefixes: tuple[str, ...], dry_run: bool) -> None:
    """Copies marks, results, watermarks and queue items from one store into another (by default that of SOLELY_URL).

    Nothing of the target is replaced by something older: it may be stopped and run again. Exits with 1 if entries
    failed, 75 if a store stayed away.
    """
    from ..copying import copy
    from ..copying.__main__ import Bar

    bar = Bar()
    try:
        report = copy(source, target, progress=bar, prefixes=prefixes or ("",), dry_run=dry_run)
    finally:
        bar.end()
    if form.name == "json":
        left, failed = ([each._asdict() for each in part] for part in (report.left_behind, report.failures))
        form.one(report.progress._asdict() | {"left_behind_entries": left, "failures": failed, "dry_run": dry_run})
    else:
        click.echo(str(report))
    if not report.complete:
        talk("run it again: what is there already is only counted")
        leave(Exit.ERROR)
