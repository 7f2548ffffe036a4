"""solely once KEY -- cmd…: runs the command at most once per key; a repeated call gets the recorded outcome."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import click

from ..claims.handle import Claim
from ..client import Client
from ..errors import StoreError
from .child_process import ChildEnd
from .exits import Exit, leave
from .help import Command
from .options import DURATION, StoreOptions, at_passed_store
from .output import talk
from .run import checked_grace, purpose_of, require_command, run_watched, watched_client, why_lost
from .waiting import waiting_for_key
from .watchdog import Watchdog

TAIL = 4_096  # bytes of output: the last screen or two, where the reason of a failure is
MOST_TAIL = 20_000  # of each stream: a byte can become six in JSON, and a claim keeps 256 KiB


@click.command(
    cls=Command,
    examples=[
        "solely once invoice:2026-01 -- ./send-invoices",
        "solely once deploy:42 --until-success --keep 7d --wait 10m -- make deploy",
    ],
)
@click.argument("key")
@click.option("--keep", type=DURATION, default="1d", show_default=True, help="How long the outcome is remembered.")
@click.option("--ttl", type=DURATION, default="30s", show_default=True, help="How soon a crash is detected.")
@click.option(
    "-w", "--wait", type=DURATION, default="0s", show_default=True, help="How long to wait if it runs elsewhere."
)
@click.option("--grace", type=DURATION, help="From SIGTERM to SIGKILL if the lease is lost.  [default: 5s, or ttl/4]")
@click.option(
    "--tail", type=click.IntRange(0, MOST_TAIL), default=TAIL, show_default=True, help="Bytes of output to remember."
)
@click.option("--until-success", is_flag=True, help="Run again after a failure, or a death without an outcome.")
@at_passed_store
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD…")
def once(
    options: StoreOptions,
    key: str,
    keep: float,
    ttl: float,
    wait: float,
    grace: float | None,
    tail: int,
    until_success: bool,
    words: tuple[str, ...],
) -> None:
    """Runs CMD unless it ran before under this KEY; then prints the end of the recorded output.

    Exits with the code of CMD, run now or before; 5 if it runs elsewhere, 6 if the lease was lost and CMD was ended,
    1 if it was started before and its outcome is unknown, 75 if the store is unreachable.
    """
    require_command(words)
    with watched_client(options, checked_grace(grace, ttl)) as (once, hook, watchdog, store):
        with waiting_for_key(store, "claim", key, wait):
            claim = once.claim(key, ttl=ttl, wait=wait, keep=keep, purpose=purpose_of(words))
        if claim.cached:
            leave(_replay(claim))
        if claim.timed_out:
            talk(f"solely: {key!r} is run by {claim.holder or 'another'}; try again in {claim.retry_after:.1f} s")
            leave(Exit.BUSY)
        with claim:
            hook.follow(claim)
            started = _Started(once, key, keep)
            if not started.first and not until_success:
                talk(
                    f"solely: {key!r} was started before, and its outcome is unknown; --until-success runs it again, "
                    f"'solely marks clear {started.mark}' removes the mark"
                )
                leave(Exit.ERROR)
            leave(_run(words, watchdog, claim, started, options, tail, until_success))


class _Started:
    """The mark that the command was started: it remains if we die, and is removed when the outcome is stored."""

    def __init__(self, once: Client, key: str, keep: float) -> None:
        self.mark = f"once:{key}"
        self._once = once
        self.first = once.first(self.mark, ttl=keep)

    def clear(self) -> None:
        """Removes the mark."""
        try:
            self._once.forget(self.mark)
        except StoreError as error:
            talk(f"solely: the mark {self.mark!r} stays: {error}")


def _run(
    words: tuple[str, ...],
    watchdog: Watchdog,
    claim: Claim,
    started: _Started,
    options: StoreOptions,
    tail: int,
    until_success: bool,
) -> int:
    at, began = datetime.now(UTC), monotonic()
    ended = run_watched(words, watchdog, claim, options, keeps=tail)
    if ended.by_watchdog:
        talk(f"solely: the lease of {claim.key!r} {why_lost(claim)}: the command was ended")
        claim.hand_over()
        return Exit.LOST
    try:
        if ended.code and until_success:
            claim.release()
        else:
            claim.publish(_outcome(ended, at, monotonic() - began))
    except StoreError as error:
        talk(f"solely: the command ended with {ended.code}, and that could not be stored: {error}")
        claim.hand_over()
    else:
        started.clear()
    return ended.code


def _outcome(ended: ChildEnd, at: datetime, took: float) -> dict[str, Any]:
    return {
        "exit_code": ended.code,
        "stdout": ended.out,
        "stderr": ended.err,
        "began": at.isoformat(timespec="seconds"),
        "took": round(took, 3),
    }


def _replay(claim: Claim) -> int:
    """Prints the recorded output and returns the recorded exit code."""
    outcome = claim.result()
    try:
        code, out, err = int(outcome["exit_code"]), str(outcome["stdout"]), str(outcome["stderr"])
        when = f"{outcome['began']}, for {outcome['took']:.1f} s"
    except (TypeError, KeyError, ValueError):
        talk(f"solely: {claim.key!r} was finished by another program than 'solely once': {outcome!r:.200}")
        return Exit.ERROR
    talk(f"solely: {claim.key!r} ran before ({when}); this is the end of its output")
    sys.stdout.write(out)
    sys.stdout.flush()
    sys.stderr.write(err)
    return code
