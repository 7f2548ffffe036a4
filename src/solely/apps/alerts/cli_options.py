"""The options with which a command names the service, and what the commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import Any

import click
import msgspec

from ...cli.options import DURATION

HERE = "http://127.0.0.1:8765"  # the default address of `solely serve`
LIMIT = click.IntRange(1, 1_000)  # rows of a page: the service's bound


def _default_url() -> str:
    given = os.environ.get("SOLELY_URL", "")
    return given if given.startswith(("http://", "https://")) else HERE


def at_service(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --at and --timeout; the command gets a client of that service."""

    @click.option(
        "--at", "url", metavar="URL", help=f"The service.  [default: SOLELY_URL if it is http(s), else {HERE}]"
    )
    @click.option("--timeout", type=DURATION, default="10s", show_default=True, help="How long to wait for a response.")
    @wraps(function)
    def command(*args: Any, url: str | None, timeout: float, **others: Any) -> Any:
        from ...http import Client

        with Client(url or _default_url(), timeout=timeout) as client:
            return function(client, *args, **others)

    return command


def moment(at: float | None) -> datetime | None:
    """Seconds of UTC as a time."""
    return None if at is None else datetime.fromtimestamp(at, UTC)


def row(struct: msgspec.Struct, *moments: str) -> dict[str, Any]:
    """The struct's fields as a row, with the fields of these names as times."""
    return msgspec.structs.asdict(struct) | {name: moment(getattr(struct, name)) for name in moments}
