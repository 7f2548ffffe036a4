"""Options that may stand before the command as well as after it: --url and --json."""

from __future__ import annotations

import click


def check_url(context: click.Context, parameter: click.Parameter, url: str | None) -> str | None:
    """The URL; BadParameter if it is empty, as that of an unset variable is: no other store is taken for it."""
    if url == "":
        raise click.BadParameter("it is empty; give a URL such as redis://host, or leave it out")
    return url


def global_url() -> str | None:
    """The --url that was given before the command."""
    url: str | None = click.get_current_context().find_root().params.get("url")
    return url


def global_json() -> bool:
    """True if --json was given before the command."""
    return bool(click.get_current_context().find_root().params.get("as_json"))
