"""solely migrate: updates the schema of the store and the tables of applications."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import click

from ..apps import APPS, module_of
from ..errors import StoreMisconfigured
from ..stores import capabilities
from ..urls import split_url
from .help import Command
from .options import StoreOptions, at_store
from .output import talk


@click.command(
    cls=Command,
    examples=[
        "solely migrate --url postgresql://admin@db/app --dry-run",
        "solely migrate --url postgresql://admin@db/app --data-url postgresql://admin@db/app",
    ],
)
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would be done.")
@click.option(
    "--data-url",
    envvar="SOLELY_DATA_URL",
    show_envvar=True,
    metavar="URL",
    help="The SQL database of applications; by default a file beside the embedded store's.",
)
@at_store
def migrate(options: StoreOptions, data_url: str | None, dry_run: bool) -> None:
    """Updates the schemas in PostgreSQL, for services whose own user is not permitted to.

    That of the store; other stores create what they need at their first use. And the tables of the service's history
    and of all applications, which are otherwise created when `solely serve` starts.
    """
    _migrate_store(options, dry_run)
    asyncio.run(_migrate_data(options, data_url, dry_run))


def _migrate_store(options: StoreOptions, dry_run: bool) -> None:
    if not capabilities(options.url).has_schema:
        options.store().close()  # InvalidInput if the URL is invalid
        talk(f"{split_url(options.url).scheme}:// has no schema to migrate")
    elif dry_run:
        _print_pending(options)
    else:
        from ..stores.postgres import migrate

        click.echo(migrate(options.url, options.credentials))


def _print_pending(options: StoreOptions) -> None:
    never = options.url + ("&" if split_url(options.url).query else "?") + "migrate=never"
    try:
        with replace(options, url=never).client() as once:
            once.check()
        talk("the schema is up to date")
    except StoreMisconfigured as error:
        talk(str(error))


async def _migrate_data(options: StoreOptions, data_url: str | None, dry_run: bool) -> None:
    from ..data import beside, migrate, open_database, pending
    from ..service.migrated import MIGRATED

    database = open_database(data_url or beside(options.url), timeout=options.timeout)
    try:
        for app, package in (MIGRATED, *((app, module_of(app)) for app in APPS)):
            found = await (pending if dry_run else migrate)(database, app, package)
            word = "to be applied" if dry_run else "applied"
            talk(f"{app}: {word}: {', '.join(found)}" if found else f"{app}: the tables are up to date")
    finally:
        await database.close()
