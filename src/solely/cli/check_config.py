"""solely check-config: the settings of the service as they are merged, or what is wrong with them."""

from __future__ import annotations

import os

import click

from .options import in_form
from .output import Form


@click.command()
@click.option("--config", type=click.Path(), envvar="SOLELY_CONFIG", show_envvar=True, help="The TOML file.")
@click.option("--url", metavar="URL", help="The store.  [env var: SOLELY_URL]")
@in_form
def command(form: Form, config: str | None, url: str | None) -> None:
    """Prints the merged settings of the service, without secrets; exits with 2 if there is a key that it does not know
    or a value that cannot be."""
    from ..service.settings import as_toml, load, shown

    loaded = load(config, os.environ, {"url": url})
    if form.name == "json":
        form.one(shown(loaded))
    else:
        click.echo(as_toml(loaded), nl=False)
