"""solely serve: the service, with its API and dashboard."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from .exits import leave
from .program import missing

if TYPE_CHECKING:
    from ..service.settings import Loaded


def with_settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flags of the service; the command is given the merged settings, which are checked."""

    @click.option("--config", metavar="FILE", help="A TOML file.  [env var: SOLELY_CONFIG]")
    @click.option("--url", metavar="URL", help="The store.  [env var: SOLELY_URL]")
    @click.option("--data-url", metavar="URL", help="The SQL database of applications.  [env var: SOLELY_DATA_URL]")
    @click.option("--host", metavar="ADDRESS", help="The address to bind; one that others can reach needs tokens.")
    @click.option("--port", type=int, help="0 takes a free one.")
    @click.option("--workers", type=int, help="Processes; more than one needs a store that they share.")
    @click.option(
        "--demo", is_flag=True, default=None, help="Simulate traffic; on a temporary store, unless --url is given."
    )
    @click.option(
        "--set", "others", multiple=True, metavar="KEY=VALUE", help="Any other setting, or APP.KEY (repeatable)."
    )
    @wraps(function)
    def given(*args: Any, config: str | None, others: tuple[str, ...], **flags: Any) -> Any:
        named = {name: flags.pop(name) for name in ("url", "data_url", "host", "port", "workers", "demo")}
        return function(*args, loaded=_load(config, named | dict(map(_pair, others))), **flags)

    return given


def _load(config: str | None, flags: dict[str, Any]) -> Loaded:
    try:
        from ..service.settings import load
    except ImportError as error:
        raise missing(error, "the service") from None
    return load(config, os.environ, flags)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--set {text}: write KEY=VALUE")
    return name.strip(), value.strip()


@click.command()
@with_settings
def command(loaded: Loaded) -> None:
    """Runs the service: the API under /v1, the dashboard at /, until SIGTERM or ^C.

    What is not given as a flag comes from the environment (SOLELY_…), then from the file, then from the defaults.
    """
    try:
        from ..service.demo import demo_settings
        from ..service.serve import serve
    except ImportError as error:
        raise missing(error, "the service") from None
    with demo_settings(loaded) if loaded.settings.demo else nullcontext(loaded.settings) as settings:
        code = serve(settings, click.echo)
    leave(code)
