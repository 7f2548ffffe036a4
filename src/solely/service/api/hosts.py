"""Hosts over HTTP: an admin releases all that a host holds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec

from ...holder import facts_of
from ...host_acts import RELEASE
from ...model import Entry, State
from ...ops import MAX_BATCH, Clear
from ..acts import Affected, act_routes
from ..reserved_names import clearing
from ..routes import Answer, Body, Call, Reason

KINDS = {"lock": "Locks", "claim": "Claims", "reservation": "Reservations"}
PAGE = 50  # entries of one scan: with the results of claims, 13 MiB at the worst
MOST_PAGES = 2_000  # scans of each kind: a hundred thousand entries take some seconds
NAMED = 10  # keys that the confirmation names of each kind


class ReleaseHost(Body):
    """The host as holders report it, and why it is to hold nothing any more."""

    host: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    reason: Reason


class ReleasedHost(Answer):
    """How many holds were released; with `more`, there are so many entries that not all were searched."""

    released: int
    more: bool


async def _held(call: Call[Any, Any], host: str, cut: list[str]) -> AsyncIterator[Entry]:
    """What the host holds. A kind of which not all entries were read is added to `cut`."""
    for kind in KINDS:
        last = ""
        for _ in range(MOST_PAGES):
            page = await call.service.store.scan(f"{kind}/", last, PAGE)
            for entry in page:
                if entry.state is State.HELD and facts_of(entry.info).get("host") == host:
                    yield entry
            if len(page) < PAGE:
                break
            last = page[-1].key
        else:
            cut.append(kind)


async def _to_release(call: Call[Any, Any], wanted: ReleaseHost) -> Affected | None:
    cut, keys = list[str](), {kind: list[str]() for kind in KINDS}
    async for entry in _held(call, wanted.host, cut):
        keys[entry.kind].append(entry.name)
    count = sum(map(len, keys.values()))
    facts = {"Host": wanted.host} | {KINDS[kind]: _listed(found) for kind, found in keys.items() if found}
    if cut:
        facts["Not all searched"] = ", ".join(KINDS[kind].lower() for kind in cut)
    return Affected(f"{count} {'key' if count == 1 else 'keys'} that {wanted.host} holds", facts) if count else None


def _listed(keys: list[str]) -> str:
    named = ", ".join(keys[:NAMED])
    return f"{len(keys)}: {named}" + (f" and {len(keys) - NAMED} more" if len(keys) > NAMED else "")


async def release(call: Call[ReleaseHost, None]) -> ReleasedHost:
    """Releases all that the host holds. What somebody else has acquired in the meantime stays."""
    wanted, cut = call.body, list[str]()
    ops = [Clear(entry.key, entry.fence, wanted.reason) async for entry in _held(call, wanted.host, cut)]
    released = 0
    for start in range(0, len(ops), MAX_BATCH):
        batch = ops[start : start + MAX_BATCH]
        for op in batch:
            clearing(op)
        released += sum(reply is True for reply in await call.service.perform(*batch))
    return ReleasedHost(released=released, more=bool(cut))


def _outcome(answer: ReleasedHost) -> str:
    return f"done: released {answer.released}"


ROUTES = act_routes(RELEASE, release, _to_release, outcome=_outcome)
