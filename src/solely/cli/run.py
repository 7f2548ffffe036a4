"""solely run --lock KEY -- cmd…: runs the command while the lock is held, and no longer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from ..client import Client
from ..errors import Busy, StoreError
from ..leases.lease import Lease
from ..model import Released
from ..rules import duration_text
from ..stores import Store
from .child_process import (
    NOT_EXECUTABLE,
    ChildEnd,
    WatchdogHook,
    exit_code_if_unusable,
    exiting_on_signals,
    run_command,
)
from .exits import Exit, leave
from .help import Command
from .options import DURATION, StoreOptions, at_passed_store
from .output import talk
from .waiting import waiting_for_key
from .watchdog import Watchdog, watched

GRACE = 5.0  # seconds between SIGTERM and SIGKILL: most services shut down faster
MOST_GRACE = 1 / 3  # of the ttl: renewal is at the half, so a sixth is left for a slow store
USUAL_GRACE = 1 / 4  # of a short ttl


@click.command(
    cls=Command,
    context_settings={"allow_interspersed_args": False},
    examples=[
        "solely run --lock nightly --skip-busy -- ./nightly.sh",
        "solely run --lock deploy --wait 10m -- make deploy",
        "solely run --lock report --at-least 5m --max-hold 1h -- sh -c 'make report | mail -s report team'",
    ],
)
@click.option("--lock", "key", required=True, metavar="KEY", help="Commands under the same key run one at a time.")
@click.option("--ttl", type=DURATION, default="30s", show_default=True, help="How long others wait after a crash.")
@click.option("-w", "--wait", type=DURATION, default="0s", show_default=True, help="How long to wait for the lock.")
@click.option("--grace", type=DURATION, help="From SIGTERM to SIGKILL if the lease is lost.  [default: 5s, or ttl/4]")
@click.option("--at-least", type=DURATION, default="0s", help="Keep the lock closed at least that long.")
@click.option("--max-hold", type=DURATION, help="End the command after that time.")
@click.option("--skip-busy", is_flag=True, help="Exit with 0 if another holder has the lock.")
@click.option(
    "-E", "--busy-code", type=click.IntRange(0, 255), metavar="CODE",
    help="Exit with CODE if another holder has the lock.  [default: 5]",
)  # fmt: skip
@at_passed_store
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD…")
def run(
    options: StoreOptions,
    key: str,
    ttl: float,
    wait: float,
    grace: float | None,
    at_least: float,
    max_hold: float | None,
    skip_busy: bool,
    busy_code: int | None,
    words: tuple[str, ...],
) -> None:
    """Runs CMD while holding a lock.

    Exits with the code of CMD; 5 if another holder has the lock, 6 if the lease was lost and CMD was ended, 75 if the
    store is unreachable. CMD finds the fence of its lease in SOLELY_FENCE, and no other variable that begins with
    SOLELY_, unless --pass-store is given.
    """
    if skip_busy and busy_code:
        raise click.UsageError(f"--skip-busy exits with 0, and --busy-code with {busy_code}: give one of them.")
    require_command(words)
    with watched_client(options, checked_grace(grace, ttl)) as (once, hook, watchdog, store):
        try:
            with waiting_for_key(store, "lock", key, wait):
                lease = once.lock(key, ttl=ttl, wait=wait, purpose=purpose_of(words), max_hold=max_hold)
        except Busy as busy:
            talk(f"solely: {busy}")
            leave(Exit.OK if skip_busy else Exit.BUSY if busy_code is None else busy_code)
        hook.follow(lease)
        if at_least:
            lease.keep_closed(at_least)
        ended = run_watched(words, watchdog, lease, options)
        _end(lease, ended)
    leave(Exit.LOST if ended.by_watchdog else ended.code)


@contextmanager
def watched_client(options: StoreOptions, grace: float) -> Iterator[tuple[Client, WatchdogHook, Watchdog, Store]]:
    """A client and its store, and the watchdog that follows its lease; it is forked before the client has threads."""
    with watched(grace) as watchdog, exiting_on_signals():
        hook, store = WatchdogHook(watchdog), options.store()
        with options.client([hook], store) as once:
            yield once, hook, watchdog, store


def require_command(words: tuple[str, ...]) -> None:
    """Exits with 127 or 126 if there is no such command, before anything is acquired."""
    code = exit_code_if_unusable(words)
    if code:
        talk(f"solely: {words[0]}: {'not executable' if code == NOT_EXECUTABLE else 'command not found'}")
        leave(code)


def checked_grace(grace: float | None, ttl: float) -> float:
    """The grace, or its default; UsageError if it leaves no time to renew."""
    if grace is None:
        return min(GRACE, ttl * USUAL_GRACE)
    if grace > ttl * MOST_GRACE:
        raise click.UsageError(
            f"--grace {duration_text(grace)} is too long for --ttl {duration_text(ttl)}: the command is ended that "
            f"long before the lease, so at most a third of it is allowed, {ttl * MOST_GRACE:.4g}s; give a longer --ttl"
        )
    return grace


def purpose_of(words: tuple[str, ...]) -> str:
    """What other callers see: the command without its arguments, which may hold secrets."""
    return words[0].rpartition("/")[2]


def run_watched(
    words: tuple[str, ...], watchdog: Watchdog, lease: Lease, options: StoreOptions, keeps: int | None = None
) -> ChildEnd:
    """How the command ended; 126 if it could not be started."""
    environment = options.environment(SOLELY_FENCE=str(lease.fence))
    try:
        return run_command(words, watchdog, environment, keeps=keeps)
    except OSError as error:
        talk(f"solely: {words[0]}: {error.strerror}")
        return ChildEnd(NOT_EXECUTABLE, watchdog.has_terminated())


def _end(lease: Lease, ended: ChildEnd) -> None:
    """Releases the lock; it expires instead if the watchdog ended the command, which may still be ending."""
    if ended.by_watchdog:
        talk(f"solely: the lease of {lease.key!r} {why_lost(lease)}: the command was ended")
        lease.hand_over()
        return
    try:
        outcome = lease.release()
        if outcome is not Released.RELEASED:
            talk(f"solely: the lease of {lease.key!r} had ended before the command did ({outcome})")
    except StoreError as error:
        talk(f"solely: the lock {lease.key!r} was not released, and opens in {lease.remaining():.0f} s: {error}")


def why_lost(lease: Lease) -> str:
    """Why the lease was lost, for a message."""
    return f"was lost ({lease.lost_how})" if lease.lost else "could not be renewed in time"
