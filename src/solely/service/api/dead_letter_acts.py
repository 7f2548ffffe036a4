"""What people do to dead letters: replay or purge one, those with an error, or all of a group."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from ...audit import DONE, FAILED, NOTHING
from ...dead_letters.flow import Where
from ...errors import InvalidInput
from ..acts import Act, Affected, Field, act_routes
from ..dashboard.reruns import Reruns
from ..problems import UNKNOWN, Problem
from ..routes import Answer, Body, Call, Key
from .dead_letters import ErrorText, Purged, PurgeLetters

_GONE = "There is no such dead letter any more: it was replayed or purged."
_SELECTED = (Field("group"), Field("id"), Field("error"), Field("all"))

REPLAY = Act(
    name="dead-letters.replay",
    title="Replay dead letters",
    verb="replay",
    summary="Run dead letters again, if their code is part of this service",
    nothing=_GONE,
    again="Runs what is left, one caller at a time.",
    scope="write",
    api="/v1/dead-letters/replay",
    page="/dead-letters/replay",
    means="Each is run as its work was at first, unless that has succeeded in the meantime. What succeeds is removed; "
    "what fails again stays, with one more attempt.",
    fields=_SELECTED,
)
PURGE = Act(
    name="dead-letters.purge",
    title="Purge dead letters",
    verb="purge",
    summary="Remove dead letters permanently",
    nothing=_GONE,
    again="Safe: there is nothing left to remove, unless something has failed since.",
    api="/v1/dead-letters/purge",
    page="/dead-letters/purge",
    means="They are removed permanently, with their payloads; their work is not done.",
    fields=_SELECTED,
    changed="purged",
)


class ReplayLetters(Body):
    """The letter with this id, those whose last error contains `error`, or all letters of the group."""

    group: Key
    id: Key | None = None
    error: ErrorText | None = None
    all: bool = False

    @property
    def key(self) -> str:
        """The key in the audit log."""
        return self.group

    @property
    def reason(self) -> str:
        """What the audit log has in place of a reason."""
        return f"replay of {self.id or (f'those with {self.error!r}' if self.error else 'all')}"


class ReplayedLetters(Answer):
    """`replaying`, for several: the dashboard shows the progress. For one: replayed, failed (again), skipped (its work
    has succeeded in the meantime), busy (somebody else runs it), gone or unreadable."""

    outcome: str


Selected = ReplayLetters | PurgeLetters


def _where(wanted: Selected) -> Where:
    """Selects the letters; InvalidInput unless the request has exactly one of id, error and all."""
    if bool(wanted.id) + bool(wanted.error) + wanted.all != 1:
        raise InvalidInput("which letters? Give one of id, error and all")
    id, error = wanted.id, wanted.error or ""
    return lambda letter: letter.id == id if id else error in letter.last_error


async def _affected(call: Call[Any, Any], wanted: Selected) -> Affected | None:
    count = await call.service.once.dead_letters(wanted.group).count(_where(wanted))
    facts = {"Group": wanted.group, "Letter": wanted.id or "", "Last error contains": wanted.error or ""}
    shown = {label: text for label, text in facts.items() if text}
    what = f"{count} dead letter{'' if count == 1 else 's'} of {wanted.group!r}"
    return Affected(what, shown) if count else None


def _back(wanted: Selected) -> str:
    query = {"group": wanted.group} | ({"error": wanted.error} if wanted.error else {})
    return f"/dead-letters?{urlencode(query)}"


async def purge(call: Call[PurgeLetters, None]) -> Purged:
    """Removes the letters permanently."""
    wanted, where = call.body, _where(call.body)
    box = call.service.clearing.dead_letters(wanted.group)
    if wanted.error:
        return Purged(purged=await box.purge(where=where, reason=wanted.reason))
    return Purged(purged=await box.purge(wanted.id, all=wanted.all, reason=wanted.reason))


async def _to_replay(call: Call[Any, Any], wanted: ReplayLetters) -> Affected | None:
    _code_of(call, wanted.group)
    return await _affected(call, wanted)


def _code_of(call: Call[Any, Any], group: str) -> Any:
    """The function that runs letters of this group; raises Problem if this service has none."""
    run = call.service.dashboard.replays.get(group)
    if run is None:
        raise Problem(UNKNOWN, f"This service cannot run the letters of {group!r}.")
    return run


async def replay(call: Call[ReplayLetters, None]) -> ReplayedLetters:
    """Runs one letter now, or starts to run several."""
    wanted, service = call.body, call.service
    run = _code_of(call, wanted.group)
    _where(wanted)  # checks it
    if wanted.id is not None:
        replayed = await service.letters(wanted.group).replay(wanted.id, run)
        return ReplayedLetters(outcome=replayed.outcome.value)
    await Reruns(service).start(wanted.group, wanted.error or "", call.principal.name, run)
    return ReplayedLetters(outcome="replaying")


def _outcome(answer: ReplayedLetters) -> str:
    if answer.outcome == "failed":
        return f"{FAILED}the letter failed again"
    return DONE if answer.outcome in ("replaying", "replayed", "skipped") else NOTHING


ROUTES = [
    *act_routes(PURGE, purge, _affected, back=_back),
    *act_routes(REPLAY, replay, _to_replay, outcome=_outcome, note=lambda answer: answer.outcome, back=_back),
]
