"""solely migrate: brings the schema of the store up to date."""

from __future__ import annotations

from urllib.parse import urlsplit

import click

from ..errors import StoreMisconfigured
from .options import Place, at_store
from .output import talk


@click.command()
@click.option("--dry-run", is_flag=True, help="Change nothing; say whether something is to be done.")
@at_store
def command(place: Place, dry_run: bool) -> None:
    """Brings the schema of the store up to date: for a PostgreSQL whose everyday user may not change it.

    The other stores have nothing to migrate: they make what they need when they are first used.
    """
    scheme = urlsplit(place.url).scheme
    if scheme not in ("postgresql", "postgres"):
        place.store().close()  # InvalidInput if it cannot be
        talk(f"{scheme}:// has no schema to migrate")
    elif dry_run:
        _look(place)
    else:
        from ..stores.postgres import migrate

        click.echo(migrate(place.url))


def _look(place: Place) -> None:
    never = place.url + ("&" if urlsplit(place.url).query else "?") + "migrate=never"
    try:
        with Place(never, place.timeout).client() as once:
            once.check()
        talk("the schema is up to date")
    except StoreMisconfigured as error:
        talk(str(error))
