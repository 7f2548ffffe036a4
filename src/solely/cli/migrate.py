"""solely migrate: brings the schema of the store, and the tables of applications, up to date."""

from __future__ import annotations

import asyncio

import click

from ..apps import APPS, module_of
from ..errors import StoreMisconfigured
from ..stores import capabilities
from ..urls import split_url
from .options import Place, at_store
from .output import talk


@click.command()
@click.option("--dry-run", is_flag=True, help="Change nothing; say whether something is to be done.")
@click.option(
    "--data-url",
    envvar="SOLELY_DATA_URL",
    show_envvar=True,
    metavar="URL",
    help="The SQL database of applications; without one, a file beside the embedded store's.",
)
@at_store
def command(place: Place, data_url: str | None, dry_run: bool) -> None:
    """Brings schemas up to date: for a PostgreSQL whose everyday user may not change them.

    That of the store, if it has one: the others make what they need when they are first used. And the tables of all
    applications, which else are made when `solely serve` starts.
    """
    _migrate_store(place, dry_run)
    asyncio.run(_migrate_data(place, data_url, dry_run))


def _migrate_store(place: Place, dry_run: bool) -> None:
    if not capabilities(place.url).has_schema:
        place.store().close()  # InvalidInput if the URL is invalid
        talk(f"{split_url(place.url).scheme}:// has no schema to migrate")
    elif dry_run:
        _look(place)
    else:
        from ..stores.postgres import migrate

        click.echo(migrate(place.url))


def _look(place: Place) -> None:
    never = place.url + ("&" if split_url(place.url).query else "?") + "migrate=never"
    try:
        with Place(never, place.timeout).client() as once:
            once.check()
        talk("the schema is up to date")
    except StoreMisconfigured as error:
        talk(str(error))


async def _migrate_data(place: Place, data_url: str | None, dry_run: bool) -> None:
    from ..data import beside, migrate, open_database, pending

    database = open_database(data_url or beside(place.url), timeout=place.timeout)
    try:
        for app in APPS:
            found = await (pending if dry_run else migrate)(database, app, module_of(app))
            word = "to be applied" if dry_run else "applied"
            talk(f"{app}: {word}: {', '.join(found)}" if found else f"{app}: the tables are up to date")
    finally:
        await database.close()
