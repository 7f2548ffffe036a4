"""solely check-config: the settings of the service as they are merged, or what is wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .options import in_form
from .output import Form
from .serve import with_settings

if TYPE_CHECKING:
    from ..service.settings import Loaded


@click.command("check-config")
@with_settings
@in_form
def command(form: Form, loaded: Loaded) -> None:
    """Prints the settings with which `solely serve` would run, without secrets, and where each comes from.

    Exits with 2 if there is a key that it does not know, or a value that cannot be.
    """
    from ..service.settings import as_toml, shown

    if form.name == "json":
        form.one(shown(loaded))
    else:
        click.echo(as_toml(loaded), nl=False)
