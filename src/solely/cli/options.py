"""Options that many commands share: the store, the output format, paging, the reason and the confirmation."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import click

from ..client import Client, default_url
from ..credentials import environment_of_others
from ..drivers.retrying import ONE_TRY
from ..errors import InvalidInput, StoreUnavailable
from ..events import Hook
from ..rules import duration
from ..stores import Store, capabilities, open_store
from .global_options import check_url, global_json, global_url
from .output import FORMS, Form

TOKEN = "SOLELY_TOKEN"
REASON = (3, 500)  # characters of a reason: the bounds of the service, from one word to a paragraph


class Duration(click.ParamType[float]):
    """30s, 5m, 1h30m, 250ms, 7d; a bare number is seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return duration(str(value))
        except InvalidInput as error:
            self.fail(str(error), param, ctx)


DURATION = Duration()


@dataclass(frozen=True)
class StoreOptions:
    """--url, --credentials and --timeout: the store that a command uses."""

    url: str
    timeout: float
    credentials: str | None = None
    passed_on: bool = False

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a command that is run: with what names this store and its logins only if that is passed
        on, and with `more`."""
        store = {"SOLELY_URL": self.url, "SOLELY_CREDENTIALS": self.credentials or "", TOKEN: os.environ.get(TOKEN, "")}
        passed = {name: value for name, value in store.items() if value} if self.passed_on else {}
        return {**environment_of_others(), **passed, **more}

    def store(self) -> Store:
        """The store itself, for looks at many entries; close it, or the client that has it."""
        if not capabilities(self.url).shared:
            raise InvalidInput("memory:// is seen by one process only; give the --url of a store that is shared")
        return open_store(self.url, timeout=self.timeout * ONE_TRY, credentials=self.credentials)

    def client(self, hooks: Iterable[Hook] = (), store: Store | None = None) -> Client:
        """A client of the store, or of one that is open already."""
        return Client(store=store or self.store(), timeout=self.timeout, hooks=hooks)


@contextmanager
def _naming_the_remedy(url: str) -> Iterator[None]:
    """Adds what to do to the error that the store does not answer."""
    try:
        yield
    except StoreUnavailable as error:
        start = " Start the service with 'solely serve'." if capabilities(url).audits else ""
        remedy = f"Is the store running, and the URL right?{start} Name another store with --url, or in SOLELY_URL."
        raise StoreUnavailable(f"{error}\n{remedy}", key=error.key) from error


def at_store(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --url, --credentials and --timeout; the command gets them as StoreOptions."""

    @click.option(
        "--url", metavar="URL", callback=check_url, help="The store, e.g. redis://host.  [env var: SOLELY_URL]"
    )
    @click.option(
        "--credentials",
        envvar="SOLELY_CREDENTIALS",
        metavar="PROVIDER",
        help="Logins that change: entra, 'command: …', or module:name.",
    )
    @click.option(
        "--timeout", type=DURATION, default="5s", show_default=True, help="How long to retry an unreachable store."
    )
    @wraps(function)
    def given(*args: Any, url: str | None, timeout: float, credentials: str | None, **others: Any) -> Any:
        options = StoreOptions(url or global_url() or default_url(), timeout, credentials)
        with _naming_the_remedy(options.url):
            return function(options, *args, **others)

    return given


def at_passed_store(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `at_store`, of a command that runs others: adds --pass-store, which StoreOptions.environment() obeys."""

    @click.option("--pass-store", is_flag=True, help="Let CMD use the store: pass SOLELY_URL and the logins on.")
    @at_store
    @wraps(function)
    def given(options: StoreOptions, *args: Any, pass_store: bool, **others: Any) -> Any:
        return function(replace(options, passed_on=pass_store), *args, **others)

    return given


def in_form(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds -o and --json; the command gets a Form."""

    @click.option("-o", "--output", type=click.Choice(FORMS), help="Output format.  [default: table]")
    @click.option("--json", "as_json", is_flag=True, help="The same as -o json.")
    @wraps(function)
    def given(*args: Any, output: str | None, as_json: bool, **others: Any) -> Any:
        if as_json and output not in (None, "json"):
            raise click.UsageError(f"--json and -o {output} exclude each other.")
        default = "json" if as_json or global_json() else "table"
        return function(*args, form=Form(output or default), **others)

    return given


def paged(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds PREFIX, --after, --limit and --all."""
    for option in (
        click.argument("prefix", default=""),
        click.option("--after", default="", metavar="KEY", help="Start after this key."),
        click.option(
            "--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, help="Number of rows."
        ),
        click.option("--all", "everything", is_flag=True, help="All rows."),
    ):
        function = option(function)
    return function


def check_reason(context: click.Context, parameter: click.Parameter, text: str) -> str:
    """The reason without the space around it; BadParameter if it is too short or too long."""
    if not REASON[0] <= len(text.strip()) <= REASON[1]:
        raise click.BadParameter(f"say why in {REASON[0]} to {REASON[1]} characters, not in {len(text.strip())}")
    return text.strip()


def by_reason(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --reason, --dry-run and --yes, which every destructive command has."""
    for option in (
        click.option("--reason", required=True, metavar="TEXT", callback=check_reason, help="Why; for the audit log."),
        click.option("--dry-run", is_flag=True, help="Change nothing; print what would be done."),
        click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation."),
    ):
        function = option(function)
    return function


def parsed_json(text: str | bytes, what: str, remedy: str = "") -> Any:
    """The value; UsageError, with what to do, if the text is not JSON or is nested too deep."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else error
        raise click.UsageError(f"{what} is not JSON: {why}{remedy}") from None


def confirm(what: str, yes: bool) -> None:
    """Returns if the user confirms; without a terminal --yes is required."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(f"{what}? There is no terminal to confirm on; add --yes.")
    click.confirm(f"{what}?", abort=True, err=True)
