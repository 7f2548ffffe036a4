"""solely once KEY -- cmd…: the command runs at most once per key; whoever asks again is told how it ended."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import click

from ..claims.handle import Claim
from ..client import Client
from ..errors import StoreError
from .command import Ended, Keeper, letting_go
from .exits import Exit, leave
from .guard import Guard, guarding
from .options import DURATION, Place, at_store
from .output import talk
from .run import checked_grace, purpose_of, refuse_unusable, run_guarded, why_lost

TAIL = 4_096  # bytes of output: the last screen or two, where a failure says why
MOST_TAIL = 20_000  # of each of the two: as JSON a byte can become six, and a claim keeps 256 KiB


@click.command()
@click.argument("key")
@click.option("--keep", type=DURATION, default="1d", show_default=True, help="How long the outcome is remembered.")
@click.option("--ttl", type=DURATION, default="30s", show_default=True, help="How soon a crash is noticed.")
@click.option("--wait", type=DURATION, default="0s", show_default=True, help="If it runs elsewhere, wait for its end.")
@click.option("--grace", type=DURATION, help="From SIGTERM to SIGKILL if the lease is lost.  [default: 5s, or ttl/4]")
@click.option(
    "--tail", type=click.IntRange(0, MOST_TAIL), default=TAIL, show_default=True, help="Bytes of output to remember."
)
@click.option("--until-success", is_flag=True, help="Run again what failed, or what died without an outcome.")
@at_store
@click.argument("words", nargs=-1, required=True, metavar="-- CMD…")
def command(
    place: Place,
    key: str,
    keep: float,
    ttl: float,
    wait: float,
    grace: float | None,
    tail: int,
    until_success: bool,
    words: tuple[str, ...],
) -> None:
    """Runs CMD unless it was run before under this KEY; then tells its exit code and the end of its output.

    Exits with the code of CMD, run now or before; 5 if it runs elsewhere, 6 if the lease was lost and CMD therefore
    ended, 1 if it was begun before and its outcome is not known, 75 if the store gave no answer.
    """
    refuse_unusable(words)
    with guarding(checked_grace(grace, ttl)) as guard, letting_go(), place.client([keeper := Keeper(guard)]) as once:
        claim = once.claim(key, ttl=ttl, wait=wait, keep=keep, purpose=purpose_of(words))
        if claim.cached:
            leave(_tell_again(claim))
        if claim.timed_out:
            talk(f"solely: {key!r} is run by {claim.holder or 'another'}; try again in {claim.retry_after:.1f} s")
            leave(Exit.BUSY)
        with claim:
            keeper.keep(claim)
            begun = _Begun(once, key, keep)
            if not begun.first and not until_success:
                talk(
                    f"solely: {key!r} was begun before, and how it ended is not known; --until-success runs it again, "
                    f"'solely marks clear {begun.mark}' forgets it"
                )
                leave(Exit.ERROR)
            leave(_run(words, guard, claim, begun, tail, until_success))


class _Begun:
    """The mark that says that the command was begun: it outlives us if we die, and goes when the outcome is kept."""

    def __init__(self, once: Client, key: str, keep: float) -> None:
        self.mark = f"once:{key}"
        self._once = once
        self.first = once.first(self.mark, ttl=keep)

    def over(self) -> None:
        """It need not be remembered any more."""
        try:
            self._once.forget(self.mark)
        except StoreError as error:
            talk(f"solely: the mark {self.mark!r} stays: {error}")


def _run(words: tuple[str, ...], guard: Guard, claim: Claim, begun: _Begun, tail: int, until_success: bool) -> int:
    at, began = datetime.now(UTC), monotonic()
    ended = run_guarded(words, guard, claim, keeps=tail)
    if ended.by_guard:
        talk(f"solely: the lease of {claim.key!r} {why_lost(claim)}: the command was ended")
        claim.hand_over()
        return Exit.LOST
    try:
        if ended.code and until_success:
            claim.release()
        else:
            claim.publish(_outcome(ended, at, monotonic() - began))
    except StoreError as error:
        talk(f"solely: the command ended with {ended.code}, and that could not be kept: {error}")
        claim.hand_over()
    else:
        begun.over()
    return ended.code


def _outcome(ended: Ended, at: datetime, took: float) -> dict[str, Any]:
    return {
        "exit_code": ended.code,
        "stdout": ended.out,
        "stderr": ended.err,
        "began": at.isoformat(timespec="seconds"),
        "took": round(took, 3),
    }


def _tell_again(claim: Claim) -> int:
    """Tells the outcome that was kept, and answers its exit code; raises what a claim that is no command's says."""
    outcome = claim.result()
    try:
        code, out, err = int(outcome["exit_code"]), str(outcome["stdout"]), str(outcome["stderr"])
        when = f"{outcome['began']}, for {outcome['took']:.1f} s"
    except (TypeError, KeyError, ValueError):
        talk(f"solely: {claim.key!r} was finished by something else than 'solely once': {outcome!r:.200}")
        return Exit.ERROR
    talk(f"solely: {claim.key!r} was run before ({when}); this is the end of what it said")
    sys.stdout.write(out)
    sys.stdout.flush()
    sys.stderr.write(err)
    return code
