"""The options with which a command names a running service: --at and --timeout."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from .. import __version__
from ..errors import SolelyError, StoreFailed, StoreUnavailable
from .extras import missing
from .global_options import check_url, global_url
from .options import DURATION

if TYPE_CHECKING:
    from ..http import Client

HERE = "http://127.0.0.1:8765"  # the default address of `solely serve`


def service_url(at: str | None) -> str:
    """The address of the service: --at, else the global --url, else SOLELY_URL if it is http(s), else HERE."""
    for given, must_fit in ((at, True), (global_url(), True), (os.environ.get("SOLELY_URL"), False)):
        if given and given.startswith(("http://", "https://")):
            return given
        if given and must_fit:
            shown = given.partition("://")[0][:40]  # the rest may hold a password
            raise click.UsageError(
                f"This command calls a running service, whose URL begins with http:// or https://, not with {shown!r}. "
                f"Start one with 'solely serve', and give its address with --at; the default is {HERE}."
            )
    return HERE


# What a command may raise that reads an answer which lacks something, or has it in another form.
_UNEXPECTED = (LookupError, TypeError, ValueError, AttributeError)


@contextmanager
def _speaking_to(client: Client, address: str) -> Iterator[None]:
    """Checks that a service answers at the address, before a command says to have done anything there.

    One of another version may answer otherwise than this command expects: then that is said. Of the same version, it is
    a bug, and raised as such.
    """
    version = client.version()
    try:
        yield
    except _UNEXPECTED as error:
        if isinstance(error, SolelyError) or version == __version__:
            raise
        other = f"{urlsplit(address).hostname} is a service of version {version}"
        raise StoreFailed(f"{other}, which answers otherwise than this command of {__version__} expects") from error


@contextmanager
def _naming_the_remedy() -> Iterator[None]:
    """Adds what to do to the error that no service answers at the address."""
    try:
        yield
    except StoreUnavailable as error:
        if error.__cause__ is None:  # the service has answered: it cannot reach its store
            raise
        remedy = "Start the service with 'solely serve', or give the address of a running one with --at URL."
        raise StoreUnavailable(f"{error}\n{remedy}") from error


def at_service(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --at and --timeout; the command gets a client of that service."""

    @click.option(
        "--at",
        "--url",
        "url",
        metavar="URL",
        callback=check_url,
        help=f"The service.  [default: SOLELY_URL if it is http(s), else {HERE}]",
    )
    @click.option("--timeout", type=DURATION, default="10s", show_default=True, help="How long to wait for a response.")
    @wraps(function)
    def command(*args: Any, url: str | None, timeout: float, **others: Any) -> Any:
        address = service_url(url)
        try:
            from ..http import Client
        except ImportError as error:
            raise missing(error, "the client of the service") from None
        with Client(address, timeout=timeout) as client, _naming_the_remedy(), _speaking_to(client, address):
            return function(client, *args, **others)

    return command
