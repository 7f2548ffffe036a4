"""solely run --lock KEY -- cmd…: the command runs while the lock is held, and no longer."""

from __future__ import annotations

import click

from ..errors import Busy, StoreError
from ..leases.lease import Lease
from ..model import Released
from .command import NOT_EXECUTABLE, Ended, Keeper, letting_go, run_command, unusable
from .exits import Exit, leave
from .guard import Guard, guarding
from .options import DURATION, Place, at_store
from .output import talk

GRACE = 5.0  # seconds between SIGTERM and SIGKILL: a service that shuts down in order mostly needs less
MOST_GRACE = 1 / 3  # of the ttl: renewal comes at the half, so a sixth is left for a store that is slow just then
USUAL_GRACE = 1 / 4  # of a short ttl


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--lock", "key", required=True, metavar="KEY", help="Whoever runs under the same key runs alone.")
@click.option("--ttl", type=DURATION, default="30s", show_default=True, help="After a crash others wait that long.")
@click.option("--wait", type=DURATION, default="0s", show_default=True, help="Wait so long for the lock.")
@click.option("--grace", type=DURATION, help="From SIGTERM to SIGKILL if the lease is lost.  [default: 5s, or ttl/4]")
@click.option("--at-least", type=DURATION, default="0s", help="However soon it ends, the lock opens not before that.")
@click.option("--max-hold", type=DURATION, help="End the command after that long.")
@click.option("--skip-busy", is_flag=True, help="If somebody else has the lock, that is fine: exit with 0.")
@at_store
@click.argument("words", nargs=-1, required=True, metavar="-- CMD…")
def command(
    place: Place,
    key: str,
    ttl: float,
    wait: float,
    grace: float | None,
    at_least: float,
    max_hold: float | None,
    skip_busy: bool,
    words: tuple[str, ...],
) -> None:
    """Runs CMD while holding a lock.

    Exits with the code of CMD; 5 if somebody else has the lock, 6 if the lease was lost and CMD therefore ended, 75 if
    the store gave no answer. CMD finds the fence of its lease in SOLELY_FENCE.
    """
    refuse_unusable(words)
    with guarding(checked_grace(grace, ttl)) as guard, letting_go(), place.client([keeper := Keeper(guard)]) as once:
        try:
            lease = once.lock(key, ttl=ttl, wait=wait, purpose=purpose_of(words), max_hold=max_hold)
        except Busy as busy:
            talk(f"solely: {busy}")
            leave(Exit.OK if skip_busy else Exit.BUSY)
        keeper.keep(lease)
        if at_least:
            lease.keep_closed(at_least)
        ended = run_guarded(words, guard, lease)
        undo(lease, ended)
    leave(Exit.LOST if ended.by_guard else ended.code)


def refuse_unusable(words: tuple[str, ...]) -> None:
    """Leaves with 127 or 126 if there is no such command: before anything is taken."""
    code = unusable(words)
    if code:
        talk(f"solely: {words[0]}: {'not executable' if code == NOT_EXECUTABLE else 'command not found'}")
        leave(code)


def checked_grace(grace: float | None, ttl: float) -> float:
    """The grace, which must leave time to renew."""
    if grace is None:
        return min(GRACE, ttl * USUAL_GRACE)
    if grace > ttl * MOST_GRACE:
        raise click.UsageError(
            f"--grace {grace:g}s is too long for --ttl {ttl:g}s: the command is ended that long before the lease, "
            f"so it may be a third of it, {ttl * MOST_GRACE:g}s; give a longer --ttl"
        )
    return grace


def purpose_of(words: tuple[str, ...]) -> str:
    """What others are told: the command without its arguments, which may hold secrets."""
    return words[0].rpartition("/")[2]


def run_guarded(words: tuple[str, ...], guard: Guard, lease: Lease, keeps: int | None = None) -> Ended:
    """How the command ended; what cannot be run ends with 126."""
    try:
        return run_command(words, guard, lease, keeps=keeps)
    except OSError as error:
        talk(f"solely: {words[0]}: {error.strerror}")
        return Ended(NOT_EXECUTABLE, guard.has_ended_it())


def undo(lease: Lease, ended: Ended) -> None:
    """Releases the lock; if the guard ended the command, leaves it to expire: what was begun may still be ending."""
    if ended.by_guard:
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
    """How the lease came to be lost."""
    return f"was lost ({lease.lost_how})" if lease.lost else "could not be renewed in time"
