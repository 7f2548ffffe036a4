"""Signals: each signal of a (house, game) group is written once, however many producers post it."""

from __future__ import annotations

from ...kit.commands import Act, Field, Listing, limit

OFF = Act(
    name="signals.off",
    title="Switch idempotent signals off",
    verb="disable",
    summary="Switch idempotent signals off: everything that is posted is written",
    means="All workers write every signal that is posted, also duplicates, from within a second on.",
    nothing="They are off already.",
    again="Nothing more happens.",
    changed="switched",
)
ON = Act(
    name="signals.on",
    title="Switch idempotent signals on",
    verb="enable",
    summary="Switch idempotent signals on again",
    means="Each signal is written once per window again, from within a second on.",
    nothing="They are on already, or the setting use_idempotent_signals is false.",
    again="Nothing more happens.",
    changed="switched",
    asks=False,
)
REPLAY = Act(
    name="signals.replay",
    title="Replay the dead letters",
    verb="replay",
    summary="Replay all dead letters of signals, once their cause is mended",
    means="Each signal is written, unless its credential got one within the window. One that fails again is kept.",
    nothing="There is no dead letter, or each failed again.",
    again="Replays those that are left.",
    changed="replayed",
    asks=False,
)
ROLLBACK = Act(
    name="signals.rollback",
    title="Roll back to the old path",
    verb="roll back",
    summary="Remove what idempotent signals keep in the store, once they are off and all dead letters are exported",
    means="All dead letters that were exported, all locks and all marks of signals are removed.",
    nothing="Nothing was removed: switch idempotent signals off and export all dead letters first.",
    again="Removes what is left.",
    page="",
    fields=(Field("exported", reading="lines"),),
    changed="rolled_back",
    shows=True,
)

GROUPS = Listing(
    "/api/signals/groups",
    "groups",
    "List the groups of the last hour, with their rates, the latest first",
    ("house", "game", "generated", "deduplicated", "contention", "dead_lettered", "waiting", "last"),
    more=("acquired", "contended", "average_ms"),
    times=("last",),
    fields=(limit(100),),
    none="No signal was posted in the last hour.",
)
WAITING = Listing(
    "/api/signals/waiting",
    "signals",
    "List the signals that no consumer has acknowledged, in the order in which they are read",
    ("id", "house", "game", "username", "priority", "at"),
    more=("signal",),
    times=("at",),
    fields=(
        Field("house", hint="Only of this house.", option="--house"),
        Field("game", hint="Only of this game.", option="--game"),
        limit(100),
    ),
    none="No signal waits.",
)
DEAD_LETTERS = Listing(
    "/api/signals/dead-letters",
    "dead_letters",
    "List the signals that failed",
    ("id", "house", "game", "username", "attempts", "error", "last_at"),
    more=("first_at", "fence", "signal"),
    times=("first_at", "last_at"),
    fields=(Field("after", hint="Continue where the last page ended.", option="--after", example="ID"), limit(100)),
    none="No signal failed.",
)
