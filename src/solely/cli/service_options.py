"""The options with which a command names a running service: --at and --timeout."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from .options import DURATION

HERE = "http://127.0.0.1:8765"  # the default address of `solely serve`


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
        from ..http import Client

        with Client(url or _default_url(), timeout=timeout) as client:
            return function(client, *args, **others)

    return command
