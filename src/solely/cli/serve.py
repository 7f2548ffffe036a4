"""solely serve, check-config and token: the service, its settings, and the tokens of its callers."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .exits import leave
from .extras import missing
from .global_options import global_url
from .help import Command
from .options import in_form
from .output import Form

if TYPE_CHECKING:
    from ..service.settings import Loaded

MODES = ("600", "640", "644")  # for its owner, its group too, or everybody
SCOPES = ("read", "write", "admin")  # by name: the service is not imported for a page of help


def with_settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flags of the service; the command gets the merged and validated settings."""

    @click.option("--config", metavar="FILE", help="A TOML file.  [env var: SOLELY_CONFIG]")
    @click.option("--url", metavar="URL", help="The store.  [env var: SOLELY_URL]")
    @click.option("--data-url", metavar="URL", help="The SQL database of applications.  [env var: SOLELY_DATA_URL]")
    @click.option("--host", metavar="ADDRESS", help="The address to bind; one that other hosts can reach needs tokens.")
    @click.option("--port", type=int, help="0 chooses a free port.")
    @click.option("--workers", type=int, help="Number of processes; more than one needs a shared store.")
    @click.option(
        "--demo", is_flag=True, default=None, help="Simulate traffic; on a temporary store, unless --url is given."
    )
    @click.option(
        "--set", "others", multiple=True, metavar="KEY=VALUE", help="Any other setting, or APP.KEY (repeatable)."
    )
    @wraps(function)
    def given(*args: Any, config: str | None, others: tuple[str, ...], **flags: Any) -> Any:
        flags["url"] = flags["url"] or global_url()
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


@click.command(
    cls=Command,
    examples=[
        "solely serve --demo",
        "solely serve --config /etc/solely.toml",
        "solely serve --url redis://localhost --workers 2 --set max_wait=1m",
    ],
)
@with_settings
def serve(loaded: Loaded) -> None:
    """Runs the service: the API under /v1, the dashboard at /, until SIGTERM or ^C.

    Other settings come from the environment (SOLELY_…), then from the file, then from the defaults.
    """
    try:
        from ..service.demo import demo_settings
        from ..service.serve import serve as run_service
    except ImportError as error:
        raise missing(error, "the service") from None
    with demo_settings(loaded) if loaded.settings.demo else nullcontext(loaded.settings) as settings:
        code = run_service(settings, click.echo)
    leave(code)


@click.command("check-config", cls=Command, examples=["solely check-config --config /etc/solely.toml"])
@with_settings
@in_form
def check_config(form: Form, loaded: Loaded) -> None:
    """Prints the settings with which `solely serve` would run, without secrets, and where each comes from.

    Exits with 2 if a key is unknown or a value is invalid.
    """
    from ..service.settings import as_toml, shown

    if form.name == "json":
        form.one(shown(loaded))
    else:
        click.echo(as_toml(loaded), nl=False)


@click.command(
    cls=Command,
    examples=["solely token deploy-bot --scope write --file /etc/solely.tokens", "solely token grafana"],
)
@click.argument("name")
@click.option("--scope", type=click.Choice(SCOPES), default="read", show_default=True, help="What it permits.")
@click.option("--file", type=click.Path(dir_okay=False, path_type=Path), help="Append the line here (tokens_file).")
@click.option("--mode", type=click.Choice(MODES), help="Permissions of the file.  [default: 600 for a new file]")
@in_form
def token(form: Form, name: str, scope: str, file: Path | None, mode: str | None) -> None:
    """Prints a new token, once; only its SHA-256 is stored, in the file or wherever you put the line.

    Two tokens of one name can be valid at once: add the new one, move your clients over, then remove the old line.

    A service that runs as another user, as in a container, needs a file that this user can read: --mode 644.
    """
    from ..service.security import Scope, mint

    if mode is not None and file is None:
        raise click.UsageError("--mode is of the file: give --file too")

    secret, line = mint(name, Scope[scope.upper()])
    if file is None:
        click.echo(f"Add this to tokens or tokens_file: {line}", err=True)
    else:
        with open(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a") as lines:  # for this user alone
            if mode is not None:  # also of a file that exists, and whatever the umask is
                os.fchmod(lines.fileno(), int(mode, 8))
            lines.write(f"{line}\n")
    form.value("token", secret)
